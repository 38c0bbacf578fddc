"""Start, resume and finish a run in its folder."""

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

from rvsm.config import Config, as_toml, config_of, described, differences
from rvsm.data import Dataset
from rvsm.files import printable
from rvsm.records import Run, locked, speed_of
from rvsm.threads import torch_threads
from rvsm.timing.file import decode, encode
from rvsm.train.display import Display, TensorBoard, clock
from rvsm.train.divergence import DivergenceError
from rvsm.train.hardware import describe, processor
from rvsm.train.ranks import ALONE, LostError, Ranks, is_loss
from rvsm.train.recorder import Recorder, StoppedError, quoted, resuming, writing
from rvsm.train.result import finish
from rvsm.train.trainer import Callback, Trainer


def start(
    config: Config,
    folder: Path,
    console: Console,
    data: Dataset | None = None,
    *,
    brief: bool = False,
    callbacks: Sequence[Callback] = (),
    ranks: Ranks = ALONE,
) -> dict[str, Any]:
    """Train in a new folder, followed by callbacks, and return the result.

    Of several processes, only the first reads and writes the folder.
    """
    if ranks.first:
        _refuse(config, folder)
    with torch_threads(config.training.threads or ranks.threads):
        listeners = [*_listeners(config, folder, console, brief=brief, ranks=ranks), *callbacks]
        trainer = Trainer(config, data, listeners, ranks=ranks)
        trainer.load_initial_weights()
        if not ranks.first:
            return _train(None, folder, trainer)
        with locked(folder):  # the folder is made only now, so invalid input leaves none
            _refuse(config, folder)  # another process may have been faster
            with writing(folder, config):
                about = describe(trainer.placement, ranks.size)
                run = Run.create(folder, config=as_toml(config), about=about, profile=trainer.times)
            return _train(run, folder, trainer)


def resume(
    folder: Path,
    console: Console,
    data: Dataset | None = None,
    *,
    brief: bool = False,
    allow_import: Collection[str] = (),
    callbacks: Sequence[Callback] = (),
    ranks: Ranks = ALONE,
) -> dict[str, Any]:
    """Continue a run from its newest checkpoint and return the result; a finished run returns the result it has.

    A user's own model is imported only if ``allow_import`` names it as module:callable. Several processes continue from
    what the first one reads, whatever their number was before.
    """
    with ExitStack() as stack:
        left = ranks.share(lambda: _left(folder, console, stack))
        if "result" in left:
            return dict(left["result"])
        config = config_of(left["config"], folder / "config.toml", allow_import=allow_import)
        state, then = left["state"], left["about"]
        stack.enter_context(torch_threads(config.training.threads or _threads(then, ranks) or ranks.threads))
        listeners = [*_listeners(config, folder, console, brief=brief, ranks=ranks), *callbacks]
        remainder = state is None or (isinstance(state, Mapping) and state.get("remainder") is True)
        times = None if left["profile"] is None else decode(left["profile"])
        trainer = Trainer(config, data, listeners, remainder=remainder, ranks=ranks, times=times)
        _compare_machines(then, describe(trainer.placement, ranks.size), console)
        if state is None:
            trainer.load_initial_weights()
        else:
            _load(trainer, state, folder)
        run = Run(folder) if ranks.first else None
        if run is not None:
            with writing(folder, config):
                run.rewind(trainer.step)
        say(console, f"{folder}: continuing from step {trainer.step} of {trainer.steps}")
        return _train(run, folder, trainer)


def _left(folder: Path, console: Console, stack: ExitStack) -> dict[str, Any]:
    """Return the result of a run, or lock its folder and return what is needed to continue."""
    run = Run(folder)
    if (result := run.result(*_SUMMARISED)) is not None:
        return {"result": result}
    stack.enter_context(locked(folder))
    if (result := run.result(*_SUMMARISED)) is not None:  # another process has finished it
        return {"result": result}
    state, complaints = run.newest()
    for complaint in complaints:
        _warn(console, complaint)
    if complaints:
        _warn(console, "the previous checkpoint is used" if state else "no checkpoint is intact: the run starts again")
    times = run.profile()
    profile = None if times is None else encode(times)
    return {"config": run.config(), "state": state, "about": _about(run, console), "profile": profile}


def start_or_resume(
    config: Config,
    folder: Path,
    console: Console,
    data: Dataset | None = None,
    *,
    brief: bool = False,
    callbacks: Sequence[Callback] = (),
    ranks: Ranks = ALONE,
) -> dict[str, Any]:
    """Start or resume a run unless it is finished, and return its result."""
    if not ranks.share((folder / "config.toml").exists):
        return start(config, folder, console, data, brief=brief, callbacks=callbacks, ranks=ranks)
    if ranks.first:
        refuse_others(config, folder)
    allowed = [config.model.name]
    return resume(folder, console, data, brief=brief, allow_import=allowed, callbacks=callbacks, ranks=ranks)


def _listeners(config: Config, folder: Path, console: Console, *, brief: bool, ranks: Ranks) -> list[Callback]:
    if not ranks.first:
        return []
    display = Display(console, brief=brief)
    return [display, TensorBoard(folder / "tensorboard")] if config.training.tensorboard else [display]


def _train(run: Run | None, folder: Path, trainer: Trainer) -> dict[str, Any]:
    """Train to the end and return the result; a process without a run writes nothing."""
    trainer.callbacks = [Recorder(run), *trainer.callbacks]
    again = resuming(folder, trainer.config)
    try:
        trainer.run()
        weights, result = finish(trainer)
        if run is not None:
            with writing(folder, trainer.config):
                run.finish(weights, result)
    except KeyboardInterrupt as stopped:
        raise StoppedError(f"{str(stopped) or 'stopped'}; continue with: {again}") from None
    except DivergenceError as error:
        kept = [] if run is None else run.checkpoints()
        last = f"The last good checkpoint is {kept[-1]}" if kept else "There is no checkpoint yet"
        raise DivergenceError(f"{error} {last}; start again with different options in a new folder.") from None
    except RuntimeError as error:
        if is_loss(error):
            raise LostError(
                "another process of this training has ended, perhaps because it was killed or its memory ran out; the"
                f" work up to the last checkpoint is kept; continue with: {again}"
            ) from None
        raise
    return result


_SUMMARISED = ("test", "sparsity", "sparsity_of_all", "multiplications_saved", "seconds")


def summary(result: dict[str, Any]) -> str:
    """Return a result as a sentence."""
    w, u = (f"{100 * result['test'][copy]['accuracy']:.2f} %" for copy in ("w", "u"))
    fast = speed_of(result)
    if not result["sparsity"]:
        return f"test accuracy {u}, no zeros; {clock(result['seconds'])}"
    parts = {"all parameters": result["sparsity_of_all"], "the multiplications": result["multiplications_saved"]}
    others = ", ".join(f"{100 * zeros:.2f} % of {part}" for part, zeros in parts.items() if zeros is not None)
    return (
        f"test accuracy of u {u} with {100 * result['sparsity']:.2f} % zeros of the sparsified weights ({others});"
        f" of w {w}; {'' if fast is None else f'{fast.sentence}; '}{clock(result['seconds'])}"
    )


def refuse_others(config: Config, folder: Path) -> None:
    """Raise if the folder holds a run with different options."""
    if not (folder / "config.toml").exists():
        return
    try:
        theirs = described(Run(folder).config(), allow_import=[config.model.name])
    except ValueError as error:
        raise ValueError(
            f"{folder} holds a run that this version cannot read ({error}); give another folder, or remove it"
        ) from None
    if changes := differences(theirs, config):
        shown = ", ".join(changes[:4]) + (" …" if len(changes) > 4 else "")
        raise ValueError(f"{folder} holds a run with different options ({shown}); give another folder, or remove it")


def _refuse(config: Config, folder: Path) -> None:
    """Raise if the folder already holds a run, or is no folder."""
    if folder.is_file():
        raise ValueError(f"{folder} is a file; give a folder for the run")
    if not (folder / "config.toml").exists():
        return
    refuse_others(config, folder)
    if Run(folder).result() is not None:
        raise ValueError(f"{folder} is finished; see it with: rvsm report {quoted(folder)}, or give another folder")
    raise ValueError(
        f"{folder} holds this run, unfinished; continue with: {resuming(folder, config)}, unless another process is"
        " training there"
    )


def _about(run: Run, console: Console) -> dict[str, Any]:
    """Return the machine and versions at the start of the run, if they can be read."""
    try:
        return run.about()
    except ValueError as error:
        _warn(console, str(error))
        return {}


def _threads(then: Mapping[str, Any], ranks: Ranks) -> int | None:
    """Return how many threads a run started with on this machine; another number would change the last bits."""
    threads = then.get("threads")
    usable = isinstance(threads, int) and 0 < threads <= (os.cpu_count() or 1)
    same = then.get("machine") == processor() and then.get("processes", 1) == ranks.size
    return threads if usable and same else None


def _compare_machines(then: Mapping[str, Any], now: Mapping[str, Any], console: Console) -> None:
    """Warn if the rest of a run will not be computed in the same way as its beginning."""
    changed = [f"{k} {then[k]} → {now[k]}" for k in now if k in then and then[k] != now[k]]
    if changed:
        _warn(
            console,
            f"the machine or versions differ from those at the start ({'; '.join(changed)}): the results will not be"
            " bit-identical to those of an uninterrupted run",
        )


def _load(trainer: Trainer, state: dict[str, Any], folder: Path) -> None:
    try:
        trainer.load_state(state)
    except Exception as error:  # the contents may be anything
        raise ValueError(
            f"the checkpoint in {folder} does not fit what its config.toml describes; were options, the model or the"
            " data changed since? Change them back, or start again in a new folder"
            f" ({' '.join(str(error).split())[:300]})"
        ) from None


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print lines as they are: without markup, since names may have brackets, without wrapping, with escapes shown."""
    shown = "\n".join(map(printable, text.split("\n")))
    console.print(shown, style=style, highlight=False, markup=False, soft_wrap=True)


def _warn(console: Console, text: str) -> None:
    say(console, text, "yellow")
