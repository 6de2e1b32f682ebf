"""The lab: the paper's experiments, and the same experiment on a user's own model.

Data flows one way, and each file imports only from its left::

    spec → plan → trial → events → store → statistics → report
     │      │       │       │        │
     │      │       │       │        └ store writes files, files and tables read them
     │      │       │       └ engines run trials and give events; driver keeps them
     │      │       └ training has the only loop; custom_loop runs a user's
     │      └ plan names each trial by all that defines it; seeds pairs them
     └ spec validates; spec_file reads TOML; variants changes it, under another name

:class:`Study` and :func:`run` are the whole of it from Python::

    from adadecay.lab import Study, run
    study = Study("quickstart")
    run(study)
    study.results()
"""

from typing import TYPE_CHECKING, Any

from adadecay.extras import missing_lab

if TYPE_CHECKING:
    from adadecay.lab.study import Study, run

__all__ = ["Study", "run"]


def __getattr__(name: str) -> Any:
    if name in __all__:  # late, so that importing one room does not load the others
        try:
            from adadecay.lab import study
        except ModuleNotFoundError as error:
            if (sentence := missing_lab(error)) is None:
                raise
            raise ModuleNotFoundError(sentence, name=error.name) from None
        return getattr(study, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
