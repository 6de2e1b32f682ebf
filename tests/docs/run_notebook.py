"""Run a notebook's code cells in one namespace: run_notebook.py NOTEBOOK [--store].

The last expression of a cell is shown as a notebook would show it; a chart is drawn as
a picture, so that one that cannot be drawn fails here too. Each value is printed as
``[number] text``. ``--store`` writes the outputs into the notebook.
"""

import ast
import base64
import contextlib
import io
import json
import sys
import warnings
from pathlib import Path

from PIL import Image


def shown(value: object) -> dict[str, object]:
    """Return what a notebook keeps of a value: text, and a picture of a chart."""
    if hasattr(value, "save") and hasattr(value, "to_dict"):  # of Altair
        picture, small = io.BytesIO(), io.BytesIO()
        value.save(picture, format="png", ppi=110)
        Image.open(picture).convert("RGB").quantize(64).save(
            small, "png", optimize=True
        )
        png = base64.b64encode(small.getvalue()).decode()
        return {"image/png": png, "text/plain": type(value).__name__}
    text = value if isinstance(value, str) else str(value)
    return {"text/plain": text}


def run_cell(number: int, source: str, names: dict[str, object]) -> list[dict]:
    """Execute one cell and return its outputs."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    printed, outputs = io.StringIO(), []
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {number}", "exec"), names)
        value = None
        if last is not None:
            code = compile(ast.Expression(last.value), f"cell {number}", "eval")
            value = eval(code, names)
    if printed.getvalue():
        print(printed.getvalue(), end="")
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": text})
    if value is not None:
        data = shown(value)
        print(f"[{number}] {data['text/plain']}")
        result = {"output_type": "execute_result", "data": data, "metadata": {}}
        outputs.append({**result, "execution_count": None})
    return outputs


def run(notebook: Path, *, store: bool = False) -> None:
    """Execute every code cell in order."""
    names: dict[str, object] = {"__name__": "__main__"}
    document = json.loads(notebook.read_text("utf-8"))
    for number, cell in enumerate(document["cells"]):
        if cell["cell_type"] == "code":
            cell["outputs"] = run_cell(number, "".join(cell["source"]), names)
    if store:
        text = json.dumps(document, indent=1, ensure_ascii=False)
        notebook.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    warnings.simplefilter("error")
    run(Path(sys.argv[1]), store="--store" in sys.argv)
