"""Run a notebook's code cells in one namespace: python run_notebook.py NOTEBOOK.

The last expression of a cell is shown as a notebook would show it, through the richest
form that it has, so that a chart that cannot be drawn fails here too. Each value is
printed as ``[number] text``.
"""

import ast
import json
import sys
import warnings
from pathlib import Path


def show(number: int, value: object) -> None:
    """Print what a cell gives, and draw it if it can be drawn."""
    rich = getattr(value, "_repr_mimebundle_", None)
    if rich is not None:
        assert rich(include=None, exclude=None), f"cell {number} shows nothing"
        value = type(value).__name__
    print(f"[{number}] {value}")


def run(notebook: Path) -> None:
    """Execute every code cell in order."""
    names: dict[str, object] = {"__name__": "__main__"}
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    for number, cell in enumerate(cells):
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"cell {number}", "exec"), names)
        if last is not None:
            code = compile(ast.Expression(last.value), f"cell {number}", "eval")
            show(number, eval(code, names))


if __name__ == "__main__":
    warnings.simplefilter("error")
    run(Path(sys.argv[1]))
