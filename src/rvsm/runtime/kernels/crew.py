"""How threads find work without Python: a leader posts a call in the box of each helper, does its part, and waits.

A helper that has finished looks into its box for a while, because calls often follow each other closely; then it falls
asleep, reading from a pipe. The leader writes a byte into the pipe of a helper that it finds asleep. A pipe works on
every system, and a byte that comes too late only makes the helper look into its box once more.
"""

from dataclasses import dataclass

from rvsm.runtime.kernels.ir import Function
from rvsm.runtime.kernels.player import spinning

# Slots of a box, 8 bytes each. Each box has its own cache lines.
STATE, CALL, FIRST, LAST, PLAY, NUMBER, READ, WRITE, YIELD, FROM, TO, BYTE = range(12)
BOX_SLOTS = 16
ASLEEP, DONE, POSTED, DISMISSED = range(4)
LOOKS = 30_000  # about 20 to 50 µs
FOREVER = 1 << 62


@dataclass(frozen=True)
class Lead:
    """``lead(boxes, threads, call, first, last)``: plays operations with helpers, and returns when all are done."""

    name: str = "lead"

    def code(self) -> str:
        """Return the LLVM code of the leader."""
        return f"{_finished()}\n\n{_lead()}"


@dataclass(frozen=True)
class Serve:
    """``serve(box)``: plays what is posted in a box, again and again, until the helper is dismissed."""

    name: str = "serve"

    def code(self) -> str:
        """Return the LLVM code of a helper."""
        return f"{_wait()}\n\n{_serve()}"


@dataclass(frozen=True)
class Dismiss:
    """``dismiss(box)``: lets a helper that has nothing to do end."""

    name: str = "dismiss"

    def code(self) -> str:
        """Return the LLVM code."""
        f = Function("dismiss", [("ptr", "box")])
        _post(f, "%box", DISMISSED)
        f.give()
        return f.text()


def _lead() -> str:
    f = Function("lead", [("ptr", "boxes"), ("i64", "threads"), ("ptr", "call"), ("i64", "first"), ("i64", "last")])
    helpers = f.op("sub i64 %threads, 1")
    with f.loop(0, helpers) as k:
        box = f.at("%boxes", f.mul(k.index, 8 * BOX_SLOTS))
        f.store("ptr", "%call", f.at(box, 8 * CALL))
        f.store("i64", "%first", f.at(box, 8 * FIRST))
        f.store("i64", "%last", f.at(box, 8 * LAST))
        _post(f, box, POSTED)
    play = f.load("ptr", f.at("%boxes", 8 * PLAY))
    f.do(f"call void {play}(ptr %call, i64 %first, i64 %last, i64 0)")
    with f.loop(0, helpers) as k:
        f.do(f"call void @finished(ptr {f.at('%boxes', f.mul(k.index, 8 * BOX_SLOTS))})")
    f.give()
    return f.text()


def _post(f: Function, box: str, state: int) -> None:
    """Write code that changes the state of a box and wakes its helper if it was asleep."""
    before = f.op(f"atomicrmw xchg ptr {box}, i64 {state} acq_rel")
    with f.when(f.op(f"icmp eq i64 {before}, {ASLEEP}")):
        write = f.load("ptr", f.at(box, 8 * WRITE))
        f.op(f"call i64 {write}({_byte(f, box, TO)})")


def _byte(f: Function, box: str, end: int) -> str:
    """Return the arguments of read or write: one end of the pipe, and a byte of the box."""
    end_of_pipe = f.op(f"trunc i64 {f.load('i64', f.at(box, 8 * end))} to i32")
    return f"i32 {end_of_pipe}, ptr {f.at(box, 8 * BYTE)}, i64 1"


def _finished() -> str:
    """Return the function that waits until a box is no longer posted: its helper is done, and may be asleep."""
    f = Function("finished", [("ptr", "box")])
    give_way = f.load("ptr", f.at("%box", 8 * YIELD))
    with spinning(f, give_way), f.when(f.op(f"icmp ne i64 {_state(f)}, {POSTED}")):
        f.leave("ret void")
    f.give()
    return f.text()


def _serve() -> str:
    f = Function("serve", [("ptr", "box")])
    play, number = f.load("ptr", f.at("%box", 8 * PLAY)), f.load("i64", f.at("%box", 8 * NUMBER))
    with f.loop(0, FOREVER):
        f.do("call void @wait(ptr %box)")
        with f.when(f.op(f"icmp eq i64 {_state(f)}, {DISMISSED}")):
            f.leave("ret void")
        first, last = (f.load("i64", f.at("%box", 8 * slot)) for slot in (FIRST, LAST))
        f.do(f"call void {play}(ptr {f.load('ptr', f.at('%box', 8 * CALL))}, i64 {first}, i64 {last}, i64 {number})")
        f.do(f"store atomic i64 {DONE}, ptr %box release, align 8")
    f.give()
    return f.text()


def _wait() -> str:
    """Return the function in which a helper waits for a post: first looking, then asleep."""
    f = Function("wait", [("ptr", "box")])
    with f.loop(0, LOOKS), f.when(f.op(f"icmp sge i64 {_state(f)}, {POSTED}")):
        f.leave("ret void")
    slept = f.op(f"cmpxchg ptr %box, i64 {DONE}, i64 {ASLEEP} acq_rel acquire")
    with f.when(f.op(f"xor i1 {f.op(f'extractvalue {{ i64, i1 }} {slept}, 1')}, true")):
        f.leave("ret void")  # something was posted in the last moment
    read = f.load("ptr", f.at("%box", 8 * READ))
    with f.loop(0, FOREVER):
        f.op(f"call i64 {read}({_byte(f, '%box', FROM)})")  # an interrupted read or an old byte: look, and read again
        with f.when(f.op(f"icmp sge i64 {_state(f)}, {POSTED}")):
            f.leave("ret void")
    f.give()
    return f.text()


def _state(f: Function) -> str:
    return f.op("load atomic i64, ptr %box acquire, align 8")
