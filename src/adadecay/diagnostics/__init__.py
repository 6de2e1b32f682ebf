"""See what θ is doing, layer by layer, while a model trains.

``measure`` looks once; ``Monitor`` looks every so many steps and hands what it sees to
writers (``JsonLines``, ``TensorBoard``); ``picture`` draws the θ of one layer. The
callbacks for trainers are in :mod:`adadecay.integrations`.
"""

from adadecay.diagnostics.description import QUANTILES, LayerRates
from adadecay.diagnostics.measure import measure
from adadecay.diagnostics.monitor import Monitor
from adadecay.diagnostics.picture import picture
from adadecay.diagnostics.writers import JsonLines, TensorBoard, Writer

__all__ = [
    "QUANTILES",
    "JsonLines",
    "LayerRates",
    "Monitor",
    "TensorBoard",
    "Writer",
    "measure",
    "picture",
]
