"""What the templates of the documentation call: numbers, tables and figures.

In: the snapshots and measurements below a root. Out: texts in the words and numbers of
the lab. Cells and optimizers have the lab's names, as in
``diff("controls", "fashion-mnist/nn-2", "adadecay", "sgd")``. The study ``all`` is the
union of those that are compared with the paper, one family of comparisons.
"""

import functools
import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from adadecay.commands.list import rows as listed
from adadecay.lab import paper
from adadecay.lab.report.caveats import caveats
from adadecay.lab.report.charts import forests, overview
from adadecay.lab.report.lines import effective_decays, sweeps
from adadecay.lab.report.style import Figure, Theme
from adadecay.lab.report.tables import Table, arm_table, comparison_table
from adadecay.lab.report.text import DASH, Numbers, counted, headline
from adadecay.lab.scoring import plural
from adadecay.lab.stats.analysis import (
    SMALLER_DECAY,
    Analysis,
    analyse,
    analyse_all,
    unite,
    unite_claims,
)
from adadecay.lab.stats.claims import ClaimResult
from adadecay.lab.stats.compare import Comparison
from adadecay.lab.stats.scores import Arm
from adadecay.lab.stats.selection import DECAY, Pair
from adadecay.lab.stats.snapshot import read_snapshot

NOT_RUN = "*not run*"
TRIALS = 10  # of a cell that somebody may still run
CORES, FLOPS = 2, 1e13  # of the machine here; operations a second that a GPU sustains
IMAGES = {"mnist": 60_000, "fashion-mnist": 60_000, "cifar-10": 50_000}
AGAINST = ("SGD", "SGD, smaller λ", "matched", "shuffled", "SGD, both at best λ")
COVERAGE = Path(__file__).parents[1] / "src/adadecay/lab/stats/coverage.toml"


def pick(numbers: Numbers, source: Table, *titles: str) -> str:
    """Write some columns of a report's table, without those that say nothing."""
    columns, lines = source.pick(*titles).columns, []
    for column in columns:
        texts = [column.text(numbers, row).replace("|", "\\|") for row in source.rows]
        if any(text != DASH for text in texts):
            side = "---:" if column.number else "---"
            lines.append([column.title, side, *texts])
    return "\n".join(f"| {' | '.join(line)} |" for line in zip(*lines, strict=True))


def lambda_of(arm: Arm) -> str:
    """Return the λ of an arm: "3e-4"."""
    return f"{arm.get(DECAY):.1e}".replace(".0e", "e").replace("e-0", "e-")


def control(arm: Arm) -> str | None:
    """Return what the overview calls an optimizer; None where it is not shown."""
    if arm.optimizer == "sgd" and arm.get("schedule") in (None, "sigmoid"):
        decay = arm.get(DECAY, paper.WEIGHT_DECAY)
        return {paper.WEIGHT_DECAY: AGAINST[0], SMALLER_DECAY: AGAINST[1]}.get(decay)
    return None if arm.get("optimizer.by") == "power" else arm.optimizer


@functools.cache
def tensors(network: str, dataset: str) -> tuple[dict[str, int], float]:
    """Return the sizes of a network's tensors, and the operations of an example."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from adadecay.lab import networks

    shape = (3, 32, 32) if dataset == "cifar-10" else (1, 28, 28)
    generator = torch.Generator().manual_seed(0)
    made = networks.make(network, input_shape=shape, classes=10, generator=generator)
    sizes = {name: each.numel() for name, each in made.named_parameters()}
    with FlopCounterMode(display=False) as counter:
        made.to("meta")(torch.empty(2, *shape, device="meta")).sum().backward()
    return sizes, counter.get_total_flops() / 2


@dataclass(frozen=True, eq=False)  # each object reads its root anew
class Values:
    """Everything that is known under a root, read and judged once."""

    root: Path  # the repository, or a copy of its shape

    def calls(self) -> dict[str, Any]:
        """Return what templates may use, by name."""
        names = [name for name in dir(type(self)) if name[0] != "_"]
        shared = (arm_table, comparison_table, counted, headline)
        shared += (lambda_of, pick, plural, caveats, zip)
        found = {each.__name__: each for each in shared}
        found |= {name: getattr(self, name) for name in names}
        found |= {"numbers": Numbers.fitting, "points": Numbers(2).gap}
        return found | {"listed": listed, "paper": paper, "TRIALS": TRIALS}

    @functools.cached_property
    def studies(self) -> dict[str, Analysis]:
        """The analysis of each snapshot, by the name of its folder."""
        folder = self.root / "evidence"
        found = sorted({path.parent for path in folder.glob("**/results.parquet")})
        names = [path.relative_to(folder).as_posix() for path in found]
        return {each: analyse(read_snapshot(folder / each)) for each in names}

    @functools.cached_property
    def _unions(self) -> list[Analysis]:
        found = [each.data for each in self.studies.values() if each.data.paper]
        return analyse_all(found)

    def analysis(self, name: str) -> Analysis | None:
        """Return the analysis of a study, or of ``all``; None where nothing was run."""
        if name != "all":
            return self.studies.get(name)
        return next((each for each in self._unions if not each.data.chosen), None)

    @functools.cached_property
    def claims(self) -> list[ClaimResult]:
        """Every claim, over everything that was run."""
        return unite_claims(self._unions)

    @functools.cached_property
    def tuned(self) -> list[tuple[Comparison, str]]:
        """AdaDecay − SGD, each at the λ that held-out data prefer, and in words."""
        claimed = [each for each in self.claims if each.claim.held_out]
        found = [each for result in claimed for each in result.comparisons]
        return [(each, self.gap(self._unions[-1], each, "adadecay")) for each in found]

    @functools.cached_property
    def cells(self) -> list[str]:
        """The twelve cells of the paper."""
        pairs = [(d, n) for d, networks in paper.NETWORKS.items() for n in networks]
        return [f"{dataset}/{network.lower()}" for dataset, network in pairs]

    def gain(self, cell: str) -> Comparison | None:
        """Return AdaDecay − SGD at the paper's λ and α; None where it was not run."""
        named = {each.claim.name: each for each in self.claims}
        found = named["beats SGD"].comparisons if named else ()
        return next((each for each in found if each.ours.cell == cell), None)

    def repeated(self) -> tuple[int, float]:
        """Return how many trials have several scores, and how far apart at most."""
        if not self.studies:
            return 0, 0.0
        columns = [a.trials.select("trial", "score") for a in self.studies.values()]
        scores = pl.concat(columns).drop_nulls().group_by("trial")
        spread = scores.agg(pl.col("score").max() - pl.col("score").min())["score"]
        apart = spread.filter(spread > 0)
        return len(apart), apart.max() or 0.0

    def measurement(self, name: str) -> Any:
        """Return what was measured and kept in ``benchmarks``; empty if nothing was."""
        if name == "coverage":
            return tomllib.loads(COVERAGE.read_text("utf-8"))
        path = self.root / "benchmarks" / f"{name}.json"
        return json.loads(path.read_text("utf-8")) if path.is_file() else {}

    def _arm(self, study: str, cell: str, who: str) -> tuple[Analysis, Arm] | None:
        if (analysis := self.analysis(study)) is None:
            return None
        known = {(arm.cell, arm.label): arm for arm in analysis.arms}
        if (cell, who) not in known:
            raise SystemExit(f"{study} has no {who} in {cell}.")
        return analysis, known[cell, who]

    def judged(self, study: str, cell: str, ours: str, other: str) -> Comparison | None:
        """Return a comparison, whichever of the two comes first; None if not run."""
        analysis = self.analysis(study)
        for each in analysis.comparisons if analysis else ():
            both = {each.ours.label, each.other.label}
            if (each.ours.cell, both) == (cell, {ours, other}):
                return each
        return None

    def score(self, study: str, cell: str, who: str) -> str:
        """Return the average of an optimizer in a cell."""
        found = self._arm(study, cell, who)
        return Numbers.fitting(found[0]).score(found[1].average()) if found else NOT_RUN

    def gap(self, analysis: Analysis, judged: Comparison, ours: str) -> str:
        """Return a difference with its interval, positive where ``ours`` is better."""
        numbers, c = Numbers.fitting(analysis), judged
        if ours not in (c.ours.label, c.ours.optimizer):
            c = c.turned()
        return f"{numbers.gap(c.difference)} {numbers.interval(*c.ends, c.pairs)}"

    def diff(self, study: str, cell: str, ours: str, other: str) -> str:
        """Return a difference for a sentence, with interval and number of pairs."""
        analysis, judged = self.analysis(study), self.judged(study, cell, ours, other)
        if analysis is None:
            return NOT_RUN
        if judged is None:
            raise SystemExit(f"{study} does not compare {ours} and {other} in {cell}.")
        text = self.gap(analysis, judged, ours).replace(" [", " points (interval [")
        return f"{text}, {plural(judged.pairs, 'pair')})"

    def theta(self, study: str, cell: str, who: str, by: str = "tensor") -> str:
        """Return the mean of θ: by tensor, by weight, or by w² (``by="norm"``)."""
        found = self._arm(study, cell, who)
        if found is None:
            return NOT_RUN
        analysis, arm = found
        rates = analysis.data.rates
        mean = next(t for t in analysis.thetas if t.arm == arm)
        if by != "weight" or rates is None:
            return f"{mean.mean if by == 'tensor' else mean.power:.3f}"
        sizes, _ = tensors(arm.network, arm.dataset)
        inside = rates.filter(pl.col("trial").is_in(arm.trials))
        layers = dict(inside.group_by("layer").agg(pl.col("mean_theta").mean()).rows())
        total = sum(sizes[layer] * mean for layer, mean in layers.items())
        return f"{total / sum(sizes[layer] for layer in layers):.3f}"

    def best(self, study: str, cell: str, method: str) -> str:
        """Return the λ with the best score, of those that a study tried."""
        analysis = self.analysis(study)
        if analysis is None:
            return NOT_RUN
        arms = [a for a in analysis.arms if (a.cell, a.method) == (cell, method)]
        return lambda_of(max(arms, key=lambda arm: arm.average() or 0.0))

    def hours(self, cell: str) -> tuple[float, float]:
        """Return about how long a cell takes: hours on two cores, hours on a GPU."""
        dataset, network = cell.split("/")
        examples = 2 * TRIALS * paper.EPOCHS * IMAGES[dataset]
        row = self.measurement("components").get("networks", {}).get(network)
        took = float(row["ms per gradient"]) / 1000 / float(row["batch"]) if row else 1
        gpu = tensors(network, dataset)[1] / FLOPS
        return examples * took / CORES / 3600, examples * gpu / 3600

    def readings(self, wanted: Sequence[Sequence[str]]) -> list[list[Any]]:
        """Return AdaDecay against SGD under other readings: one family, a row each.

        Args:
            wanted: what a reading is called, its cell, AdaDecay's label, SGD's label.
        """
        known = [v.data for k, v in self.studies.items() if k.startswith("readings")]

        def pairs(arms: Sequence[Arm]) -> list[Pair]:
            named = {(arm.cell, arm.label): arm for arm in arms}
            asked = [((cell, a), (cell, b)) for _, cell, a, b in wanted]
            return [Pair(named[a], named[b]) for a, b in asked if {a, b} <= set(named)]

        if not known:
            return []
        union = analyse(unite(known), pairs=pairs)
        show = Numbers.fitting(union).score
        scores = {(a.cell, a.label): show(a.average()) for a in union.arms}
        compared = {(c.ours.cell, c.ours.label): c for c in union.comparisons}
        rows = []
        for title, cell, ours, other in wanted:
            each = compared.get((cell, ours))
            gap = self.gap(union, each, ours) if each else DASH
            shown = [scores.get((cell, label), DASH) for label in (other, ours)]
            rows.append([title, *shown, gap, each])
        return rows

    @functools.cache  # noqa: B019 - as long as the one object that a run makes
    def figures(self, name: str) -> list[Figure]:
        """Return the figures on a study's page."""
        analysis = self.studies[name]
        theme, makers = Theme.of(analysis), (forests, sweeps, effective_decays)
        return [figure for make in makers for figure in make(analysis, theme)]

    @functools.cache  # noqa: B019
    def overview(self) -> Figure | None:
        """Return AdaDecay against SGD and the controls, in every cell that has them."""
        union, found = self.analysis("all"), {}
        for cell in self.cells:
            gain, known = self.gain(cell), {}
            if union and gain:
                own = [each for each in union.comparisons if each.ours == gain.ours]
                known = {control(each.other): each for each in own}
            for each, _ in self.tuned:
                if each.ours.cell == cell:
                    known[AGAINST[-1]] = each
            found |= {(cell, name): known[name] for name in AGAINST if name in known}
        return overview(found)
