"""Pieces for other people's trainers; each module imports its own trainer.

``lightning`` and ``transformers`` hold a callback that watches θ; ``timm`` enters
AdaDecay into timm's registry of optimizers. The optimizers themselves need none of
these: docs/integrations.md shows the one line for each trainer.
"""
