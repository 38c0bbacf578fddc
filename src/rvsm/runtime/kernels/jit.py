"""From LLVM code to addresses of machine code for this CPU; each function is compiled once per process."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from rvsm.runtime.kernels.ir import PREFETCH, declarations
from rvsm.runtime.locks import Fence

LINE = 16  # floats of a cache line, which are a vector for kernels that go from channel to channel
TOGETHER = 32  # the number of kernels that are compiled at once


@dataclass(frozen=True)
class Machine:
    """The properties of a CPU that kernels depend on: the number of floats in a vector, and of vector registers."""

    lanes: int
    registers: int
    name: str

    @property
    def widths(self) -> tuple[int, ...]:
        """The vectors that small maps may use."""
        return (16, 8) if self.lanes == 16 else (self.lanes,)


class Code(Protocol):
    """A function that can be compiled: its name and its LLVM code."""

    @property
    def name(self) -> str:
        """The unique name of the function."""

    def code(self) -> str:
        """Return its LLVM code."""


class _Compiler:
    def __init__(self) -> None:
        import llvmlite.binding as llvm  # type: ignore[import-untyped]

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self._llvm: Any = llvm
        features = llvm.get_host_cpu_features()
        if features.get("avx512f"):
            self.machine = Machine(16, 32, f"{llvm.get_host_cpu_name()}, AVX-512")
        elif features.get("avx2") and features.get("fma"):
            self.machine = Machine(8, 16, f"{llvm.get_host_cpu_name()}, AVX2")
        else:
            wide = llvm.get_process_triple().startswith(("aarch64", "arm64"))
            self.machine = Machine(4, 32 if wide else 16, f"{llvm.get_host_cpu_name()}, 128-bit vectors")
        options = features.flatten() + (",-prefer-256-bit" if self.machine.lanes == 16 else "")
        target = llvm.Target.from_default_triple()
        self._target = target.create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=options, opt=2, jit=True, codemodel="jitdefault"
        )
        empty = llvm.parse_assembly("")
        empty.triple = llvm.get_process_triple()
        self._engine = llvm.create_mcjit_compiler(empty, self._target)
        self._addresses: dict[str, int] = {}

    def addresses(self, functions: Iterable[Code]) -> dict[str, int]:
        named = {function.name: function for function in functions}
        missing = [name for name in named if name not in self._addresses]
        for k in range(0, len(missing), TOGETHER):  # interrupts are raised between iterations
            self._compile({name: named[name].code() for name in missing[k : k + TOGETHER]})
        return {name: self._addresses[name] for name in named}

    def _compile(self, texts: dict[str, str]) -> None:
        llvm = self._llvm
        known = map(declarations, {*self.machine.widths, LINE})
        module = llvm.parse_assembly("\n\n".join([PREFETCH, *known, *texts.values()]))
        module.triple = llvm.get_process_triple()
        module.data_layout = str(self._target.target_data)
        options = llvm.create_pipeline_tuning_options(speed_level=1)
        options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
        builder = llvm.create_pass_builder(self._target, options)
        builder.getModulePassManager().run(module, builder)
        self._engine.add_module(module)
        self._engine.finalize_object()
        for name in texts:
            self._addresses[name] = self._engine.get_function_address(name)


_fence = Fence()  # no fork while LLVM is compiling


@cache
def _compiler() -> _Compiler:
    return _Compiler()


def machine() -> Machine:
    """Return the properties of this CPU."""
    with _fence:
        return _compiler().machine


def compile_functions(functions: Iterable[Code]) -> dict[str, int]:
    """Return the addresses of functions by name; functions that were compiled before are not compiled again."""
    with _fence:
        return _compiler().addresses(functions)
