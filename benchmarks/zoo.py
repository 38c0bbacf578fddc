"""Which public networks the runtime takes as a whole: models of timm and Transformers, and some that people write.

    pip install --no-deps timm
    pip install transformers
    python benchmarks/zoo.py                # an hour or so, on one core; stop and start it at any time
    python benchmarks/zoo.py --only vit     # those with such names, again

Each network has random weights, 90 % of them zero, and batch norms that have seen the example, so that its outputs
depend on its inputs. It is compiled, saved, loaded, and compared with PyTorch at two batch sizes; PyTorch is compared
with itself in float64. A network that cannot be saved is listed with what stands in the way. Writes zoo.jsonl and
zoo.md beside this file.
"""

import argparse
import copy
import importlib.abc
import json
import sys
import tempfile
import time
import types
import warnings
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import rvsm
from rvsm.files import write_text
from rvsm.markdown import cell, pipe_table
from rvsm.runtime import load

LINES, TABLE = (Path(__file__).with_name(f"zoo.{kind}") for kind in ("jsonl", "md"))
ZEROS = 0.9
HEAD = ["network", "from", "without PyTorch", "difference", "PyTorch's own", "in the way"]
Made = tuple[nn.Module, tuple[Tensor, ...]]

# One of each family, the smallest or a usual one, and the size of its images.
TIMM = {
    96: """resnet18 resnet50 resnext50_32x4d wide_resnet50_2 resnetv2_50 resnetblur18 resnest14d seresnet50 ecaresnet26t
        res2net50_26w_4s densenet121 dla34 dpn68 vgg11_bn inception_v3 xception41 inception_resnet_v2 selecsls42b
        cspdarknet53 cspresnet50 darknet53 hrnet_w18_small repvgg_a0 mobileone_s0 regnetx_002 regnety_002 nf_regnet_b0
        dm_nfnet_f0 gernet_s tresnet_m mobilenetv2_100 mobilenetv3_small_100 mobilenetv4_conv_small efficientnet_b0
        tf_efficientnet_b0 efficientnetv2_rw_t mnasnet_small mixnet_s ghostnet_100 rexnet_100 lcnet_050 tinynet_e
        hardcorenas_a convnext_atto convnextv2_atto convmixer_768_32 edgenext_xx_small fastvit_t8 repvit_m0_9
        poolformer_s12 skresnet18""",
    224: """vit_tiny_patch16_224 deit_tiny_patch16_224 mixer_s32_224 resmlp_12_224 gmlp_ti16_224 cait_xxs24_224
        levit_128s pit_ti_224 swin_tiny_patch4_window7_224 xcit_nano_12_p16_224 coat_tiny efficientformer_l1
        mobilevit_xxs""",
}


def of_timm(name: str, size: int) -> Made:
    """Return a model of timm."""
    import timm  # noqa: PLC0415

    return timm.create_model(name, num_classes=10), (torch.randn(2, 3, size, size),)


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands for torchvision, which timm imports for its data pipeline and does not need for its networks."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find any module of torchvision."""
        return ModuleSpec(name, self, is_package=True) if name.split(".", maxsplit=1)[0] == "torchvision" else None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        """Return a module in which every name is a class without instances."""
        module = types.ModuleType(spec.name)
        module.__path__ = []
        module.__getattr__ = self._named  # type: ignore[method-assign]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Leave it as it is."""

    @staticmethod
    def _named(name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return Names(name, (), {})


class Names(type):
    """The class of classes whose attributes are their names, as of an enumeration."""

    def __getattr__(cls, name: str) -> str:
        """Return the name."""
        if name.startswith("__"):
            raise AttributeError(name)
        return name


def of_transformers(name: str, head: str = "Model", image: int = 0, **options: Any) -> Made:
    """Return a small model of Transformers, made from its configuration."""
    import transformers  # noqa: PLC0415

    config = getattr(transformers, f"{name}Config")(**options)
    model = getattr(transformers, f"{name}{head}")(config)
    example = torch.randn(2, 3, image, image) if image else torch.randint(0, 50, (2, 16))
    return model, (example,)


SMALL: dict[str, Any] = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
WORDS: dict[str, Any] = {"vocab_size": 100, **SMALL}
LLAMA: dict[str, Any] = {**WORDS, "num_key_value_heads": 2, "use_cache": False, "pad_token_id": 0}
TRANSFORMERS: Mapping[str, Callable[[], Made]] = {
    "Bert": lambda: of_transformers("Bert", **WORDS),
    "BertForSequenceClassification": lambda: of_transformers("Bert", "ForSequenceClassification", **WORDS),
    "Roberta": lambda: of_transformers("Roberta", **WORDS),
    "DistilBert": lambda: of_transformers("DistilBert", vocab_size=100, dim=64, n_layers=2, n_heads=4, hidden_dim=128),
    "Albert": lambda: of_transformers("Albert", embedding_size=32, **WORDS),
    "Electra": lambda: of_transformers("Electra", embedding_size=32, **WORDS),
    "MPNet": lambda: of_transformers("MPNet", **WORDS),
    "DebertaV2": lambda: of_transformers("DebertaV2", **WORDS),
    "Deberta": lambda: of_transformers("Deberta", **WORDS),
    "GPT2": lambda: of_transformers("GPT2", vocab_size=100, n_embd=64, n_layer=2, n_head=4, use_cache=False),
    "GPTNeoX": lambda: of_transformers("GPTNeoX", use_cache=False, **WORDS),
    "OPT": lambda: of_transformers("OPT", vocab_size=100, hidden_size=64, num_hidden_layers=2, ffn_dim=128,
        num_attention_heads=4, word_embed_proj_dim=64, use_cache=False),
    "Llama": lambda: of_transformers("Llama", **LLAMA),
    "Qwen2": lambda: of_transformers("Qwen2", **LLAMA),
    "ViT": lambda: of_transformers("ViT", image=64, image_size=64, patch_size=16, **SMALL),
    "Dinov2": lambda: of_transformers("Dinov2", image=56, image_size=56, patch_size=14, **SMALL),
    "Wav2Vec2": lambda: sound(of_transformers("Wav2Vec2", **WORDS)),
}  # fmt: skip


def sound(made: Made) -> Made:
    """Return a model with a second of sound."""
    return made[0], (torch.randn(2, 4000),)


def sequence(*parts: nn.Module, shape: tuple[int, ...]) -> Callable[[], Made]:
    """Return what makes a sequence of layers."""
    return lambda: (nn.Sequential(*parts), (torch.randn(2, *shape),))


class UNet(nn.Module):
    """Two steps down and two up, with transposed convolutions or with interpolation."""

    def __init__(self, bilinear: bool) -> None:
        super().__init__()

        def twice(before: int, after: int) -> nn.Sequential:
            layers = [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
            return nn.Sequential(*layers, nn.Conv2d(after, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU())

        self.down = nn.ModuleList([twice(3, 16), twice(16, 32), twice(32, 64)])
        self.up = nn.ModuleList([
            nn.Upsample(scale_factor=2, mode="bilinear") if bilinear else nn.ConvTranspose2d(n, n, 2, 2)
            for n in (64, 32)
        ])  # fmt: skip
        self.join = nn.ModuleList([twice(96, 32), twice(48, 16)])
        self.head = nn.Conv2d(16, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of the pixels."""
        a = self.down[0](x)
        b = self.down[1](nn.functional.max_pool2d(a, 2))
        c = self.down[2](nn.functional.max_pool2d(b, 2))
        b = self.join[0](torch.cat([self.up[0](c), b], 1))
        scores: Tensor = self.head(self.join[1](torch.cat([self.up[1](b), a], 1)))
        return scores


class Recurrent(nn.Module):
    """Words, a recurrent layer, and the class of the last state."""

    def __init__(self, kind: type[nn.LSTM | nn.GRU]) -> None:
        super().__init__()
        self.words, self.layer, self.head = nn.Embedding(50, 32), kind(32, 48, batch_first=True), nn.Linear(48, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores."""
        states, _ = self.layer(self.words(x))
        scores: Tensor = self.head(states[:, -1])
        return scores


WRITTEN: Mapping[str, Callable[[], Made]] = {
    "MLP with log-softmax": sequence(
        nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10), nn.LogSoftmax(1), shape=(1, 8, 8)
    ),
    "UNet, transposed": lambda: (UNet(False), (torch.randn(2, 3, 32, 32),)),
    "UNet, bilinear": lambda: (UNet(True), (torch.randn(2, 3, 32, 32),)),
    "DCGAN": sequence(
        nn.ConvTranspose2d(32, 64, 4), nn.BatchNorm2d(64), nn.ReLU(), nn.ConvTranspose2d(64, 32, 4, 2, 1),
        nn.BatchNorm2d(32), nn.ReLU(), nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh(), shape=(32, 1, 1),
    ),
    "sound, Conv1d": sequence(
        nn.Conv1d(1, 16, 9, 4), nn.GroupNorm(4, 16), nn.ELU(), nn.Conv1d(16, 32, 9, 4), nn.GELU(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 5), shape=(1, 1000),
    ),
    "video, Conv3d": sequence(
        nn.Conv3d(3, 16, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False), nn.BatchNorm3d(16), nn.ReLU(),
        nn.MaxPool3d(3, 2, 1), nn.Conv3d(16, 32, 3, padding=1), nn.BatchNorm3d(32), nn.ReLU(),
        nn.Conv3d(32, 32, (3, 1, 1), padding=(1, 0, 0)), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(),
        nn.Linear(32, 5), shape=(3, 8, 48, 48),
    ),
    "encoder of PyTorch": lambda: (
        nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2), (torch.randn(2, 10, 32),)
    ),
    "LSTM": lambda: (Recurrent(nn.LSTM), (torch.randint(0, 50, (2, 12)),)),
    "GRU": lambda: (Recurrent(nn.GRU), (torch.randint(0, 50, (2, 12)),)),
}  # fmt: skip


def zoo() -> dict[str, tuple[str, Callable[[], Made]]]:
    """Return where each model is from, and what makes it."""
    found = {name: ("hand-written", make) for name, make in WRITTEN.items()}
    found |= {name: ("Transformers", make) for name, make in TRANSFORMERS.items()}
    for size, names in TIMM.items():
        for name in names.split():
            found[name] = "timm", lambda name=name, size=size: of_timm(name, size)  # type: ignore[misc]
    return found


def tried(make: Callable[[], Made]) -> dict[str, Any]:
    """Compile, save, load and compare a model; return what came of it."""
    torch.manual_seed(0)
    model, examples = make()
    model.eval()
    with torch.no_grad():
        for w in model.parameters():
            if w.dim() > 1:
                w.mul_(torch.rand_like(w) >= ZEROS)
        norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
        for norm in norms:
            norm.train().momentum = 1.0
        model(*examples)
    model.eval()
    begin = time.perf_counter()
    program = rvsm.compile(model, examples, threads=1)
    result: dict[str, Any] = {"seconds": round(time.perf_counter() - begin, 1)}
    compiled = difference(model, program, examples)
    result["own"] = difference(model, in_double(model), examples)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.rvsm"
        try:
            program.save(file)
        except ValueError:
            outside: tuple[str, ...] = getattr(program, "outside", ())
            return {**result, "saved": False, "outside": outside, "difference": compiled}
        loaded = difference(model, load(file, threads=1), examples)
        worst = float(torch.tensor([compiled, loaded]).max())  # NaN if one is
        return {**result, "saved": True, "difference": float(f"{worst:.2g}")}


def difference(model: nn.Module, program: Callable[..., Any], examples: tuple[Tensor, ...]) -> float:
    """Return the largest difference from PyTorch, for one example and for all, relative to that of the examples."""
    apart: list[Tensor] = []
    differences: list[Tensor] = []
    for count in (len(examples[0]), 1):
        inputs = [x[:count] for x in examples]
        with torch.inference_mode():
            wanted = [x for x in tree_leaves(_plain(model(*inputs))) if isinstance(x, Tensor)]
        found = [torch.as_tensor(x) for x in tree_leaves(_plain(program(*inputs)))]
        apart = apart or [(one - one.roll(1, 0)).abs().max() for one in wanted]
        differences += [(one - other).abs().max() / far for one, other, far in zip(wanted, found, apart, strict=True)]
    return float(f"{torch.stack(differences).max():.2g}")  # NaN if there is one


def in_double(model: nn.Module) -> Callable[..., Any]:
    """Return the same network in float64."""
    double = copy.deepcopy(model).double()
    return lambda *inputs: double(*(x.double() if x.is_floating_point() else x for x in inputs))


def _plain(output: Any) -> Any:
    """Return an output of Transformers as a tuple."""
    if hasattr(output, "to_tuple"):
        return output.to_tuple()
    return tuple(output.values()) if isinstance(output, Mapping) else output


def table(lines: list[dict[str, Any]]) -> str:
    """Return the page."""
    saved = [line for line in lines if line.get("saved")]
    rows = [[cell(line["name"]), line["source"], *_outcome(line)] for line in lines]
    return "\n".join([
        "# Public networks in the runtime",
        "",
        f"Written by `zoo.py`. Random weights, {100 * ZEROS:.0f} % zeros. **{len(saved)} of {len(lines)} can be saved"
        " and run without PyTorch.** The difference is the largest one from PyTorch, relative to that of the outputs"
        " for two inputs. PyTorch's own is that of its results in float32 from those in float64.",
        "",
        pipe_table(HEAD, rows, texts=("from", "in the way")),
    ])  # fmt: skip


def _outcome(line: Mapping[str, Any]) -> list[str]:
    if "error" in line:
        return ["–", "–", "–", cell(line["error"])]
    return [
        "yes" if line["saved"] else "no",
        f"{line['difference']:.1e}",
        f"{line['own']:.1e}",
        cell(", ".join(line.get("outside", [])))[:200],
    ]


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="a part of the names; these are tried again")
    options = parser.parse_args()
    sys.meta_path.insert(0, Absent())
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    known = [json.loads(line) for line in LINES.read_text(encoding="utf-8").splitlines()] if LINES.exists() else []
    results = {line["name"]: line for line in known}
    models = zoo()
    for name, (source, make) in models.items():
        if (options.only is not None and options.only in name) or (options.only is None and name not in results):
            try:
                outcome = tried(make)
            except Exception as error:
                outcome = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
            results[name] = {"name": name, "source": source, **outcome}
            print(json.dumps(results[name], ensure_ascii=False), flush=True)
            lines = [results[name] for name in models if name in results]
            write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), LINES)
            write_text(table(lines) + "\n", TABLE)


if __name__ == "__main__":
    main()
