"""The player: walks through the operations of a program, for every chunk of images, without Python.

Each thread enters once. Either the threads share every operation of every chunk and meet at a barrier after it; or they
take whole chunks, one after the other, each in an arena of its own. The barrier counts arrivals, spins for a while and
then gives its time to others. Denormal numbers are zeros for that time.
"""

from rvsm.runtime.ir import Function
from rvsm.runtime.kernels.denormals import Mode
from rvsm.runtime.kernels.frame import PARAMETERS, SLOTS

# Slots of a call, 8 bytes each; the two counters, which threads change, have cache lines of their own.
OPERATIONS, ARENAS, INPUTS, OUTPUTS, BATCH, CHUNKS, THREADS, SHARED, YIELD = range(9)
ARRIVED, TAKEN = 16, 24
CALL_SLOTS = 32
SPINS = 4000


def play(mode: Mode) -> str:
    """Return the player: ``play(call, first operation, last operation, thread)``."""
    f = Function("play", [("ptr", "call"), ("i64", "first"), ("i64", "last"), ("i64", "thread")])
    before = mode.flush(f)
    operations, arenas = (f.load("ptr", f.at("%call", 8 * slot)) for slot in (OPERATIONS, ARENAS))
    chunks, threads, shared = (f.load("i64", f.at("%call", 8 * slot)) for slot in (CHUNKS, THREADS, SHARED))
    common = f.load("ptr", arenas)
    together = f.op(f"icmp ne i64 {shared}, 0")
    with f.when(together), f.loop(0, chunks) as chunk, f.loop("%first", "%last") as k:
        operation = f.at(operations, f.mul(k.index, 8 * SLOTS))
        _perform(f, operation, common, chunk=chunk.index, thread="%thread", threads=threads)
        with f.when(f.op(f"icmp ne i64 {f.load('i64', f.at(operation, 8))}, 0")):
            f.do(f"call void @meet(ptr %call, i64 {threads})")
    with f.when(f.op(f"xor i1 {together}, true")):
        own = f.load("ptr", f.at(arenas, f.mul("%thread", 8)))
        with f.loop(0, chunks):  # at most so many; the counter says which
            taken = f.op(f"atomicrmw add ptr {f.at('%call', 8 * TAKEN)}, i64 1 monotonic")
            with f.when(f.op(f"icmp slt i64 {taken}, {chunks}")), f.loop("%first", "%last") as k:
                operation = f.at(operations, f.mul(k.index, 8 * SLOTS))
                _perform(f, operation, own, chunk=taken, thread="0", threads="1")
    mode.restore(f, before)
    f.give()
    return f"{mode.declarations}\n\n{f.text()}"


def meet() -> str:
    """Return the barrier: waits until the arrivals are a multiple of the number of threads."""
    f = Function("meet", [("ptr", "call"), ("i64", "threads")])
    counter = f.at("%call", 8 * ARRIVED)
    arrived = f.op(f"atomicrmw add ptr {counter}, i64 1 acq_rel")
    rounds = f.op(f"sdiv i64 {arrived}, %threads")
    goal = f.mul(f.add(rounds, 1), "%threads")
    give_way = f.load("ptr", f.at("%call", 8 * YIELD))
    limit = 1 << 62
    with f.loop(0, limit) as spin:
        seen = f.op(f"load atomic i64, ptr {counter} acquire, align 8")
        with f.when(f.op(f"icmp sge i64 {seen}, {goal}")):
            f.leave("ret void")
        with f.when(f.op(f"icmp sgt i64 {spin.index}, {SPINS}")):
            f.do(f"call i32 {give_way}()")
    f.give()
    return f.text()


def _perform(f: Function, operation: str, arena: str, *, chunk: str, thread: str, threads: str) -> None:
    function = f.load("ptr", operation)
    kinds = ", ".join(kind for kind, _ in PARAMETERS)
    arguments = f"ptr {operation}, ptr {arena}, ptr %call, i64 {chunk}, i64 {thread}, i64 {threads}"
    f.do(f"call void ({kinds}) {function}({arguments})")
