import json
import os
from pathlib import Path

import pytest
import torch

from commands import run_code
from processes import Process
from rvsm.records import Run, folder_of, locked
from rvsm.records.states import save


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "a", config="seed = 0", about={"threads": 1})


def test_records_without_a_step_do_not_stop_a_resume(run: Run) -> None:
    for record in ({"step": None}, {"step": "x"}, {"step": [1]}, {"step": 2}, {"step": 9}, {}):
        run.append(record)
    run.rewind(3)
    assert run.metrics() == [{"step": 2}]


class TestFolder:
    def test_new(self, run: Run) -> None:
        assert (run.name, run.status) == ("a", "unfinished")
        assert run.config() == {"seed": 0}
        assert run.about() == {"threads": 1}
        assert (run.metrics(), run.checkpoints(), run.result()) == ([], [], None)
        assert run.newest() == (None, [])

    def test_not_a_run(self, tmp_path: Path) -> None:
        with pytest.raises(
            ValueError, match=r"is not a run's folder: it has no config\.toml; give a folder that rvsm train"
        ):
            Run(tmp_path)
        with pytest.raises(ValueError, match="nowhere is not a run's folder: it does not exist; give a folder"):
            Run(tmp_path / "nowhere")

    def test_a_folder_is_made_once(self, run: Run) -> None:
        with pytest.raises(ValueError, match="already holds a run; resume it, or give another folder"):
            Run.create(run.folder, config="seed = 1", about={})
        assert run.config() == {"seed": 0}

    def test_a_kill_while_the_folder_is_made(self, tmp_path: Path) -> None:
        (tmp_path / "a" / "checkpoints").mkdir(parents=True)
        (tmp_path / "a" / "about.json").write_text("{}")
        (tmp_path / "a" / ".config.toml.0123456789abcdef.tmp").write_text("se")
        run = Run.create(tmp_path / "a", config="seed = 1", about={})
        assert run.config() == {"seed": 1}
        with locked(run.folder):
            assert ".config.toml.0123456789abcdef.tmp" not in os.listdir(run.folder)

    def test_damaged_texts_are_named(self, run: Run) -> None:
        (run.folder / "config.toml").write_bytes(b"\xff\xfe")
        with pytest.raises(ValueError, match=r"config\.toml is damaged: "):
            run.config()
        for text in ("", "[1]", "{", "null"):
            (run.folder / "result.json").write_text(text)
            with pytest.raises(ValueError, match=r"result\.json is damaged: "):
                _ = run.status

    @pytest.mark.parametrize("name", ["config.toml", "about.json", "metrics.jsonl", "result.json", "runtime.json"])
    def test_pipes_and_folders_are_not_read(self, run: Run, name: str) -> None:
        file = run.folder / name
        file.unlink(missing_ok=True)
        read = {"config.toml": run.config, "about.json": run.about, "metrics.jsonl": run.metrics}
        os.mkfifo(file)
        with pytest.raises(ValueError, match=rf"{name} is not a regular file"):
            read.get(name, run.result if name == "result.json" else run.runtime)()
        file.unlink()
        file.mkdir()
        with pytest.raises(ValueError, match=rf"{name} is not a regular file"):
            read.get(name, run.result if name == "result.json" else run.runtime)()

    def test_pipes_in_the_place_of_tensors(self, run: Run) -> None:
        os.mkfifo(run.folder / "checkpoints" / "step-000000001.safetensors")
        os.mkfifo(run.folder / "model.safetensors")
        state, complaints = run.newest()
        assert state is None
        assert "is not a regular file" in complaints[0]
        with pytest.raises(ValueError, match=r"model\.safetensors is not a regular file"):
            run.weights()

    def test_deep_nesting(self, run: Run) -> None:
        deep = "[" * 100_000 + "]" * 100_000
        for name, text in [("config.toml", f"a = {deep}"), ("about.json", deep), ("result.json", deep)]:
            (run.folder / name).write_text(text)
        (run.folder / "metrics.jsonl").write_text(f'{deep}\n{{"step": 1}}\n')
        for read in (run.config, run.about, run.result):
            with pytest.raises(ValueError, match="is damaged: it is nested too deeply"):
                read()
        assert run.metrics() == [{"step": 1}]

    def test_any_alphabet(self, tmp_path: Path) -> None:
        run = Run.create(tmp_path / "ℓ0 [90 %]", config='name = "ℓ0"', about={"machine": "größer"})
        run.append({"step": 1, "text": "\u2028 ℓ\n"})
        assert run.config() == {"name": "ℓ0"}
        assert run.about() == {"machine": "größer"}
        assert run.metrics() == [{"step": 1, "text": "\u2028 ℓ\n"}]

    def test_names_that_are_no_characters_lose_nothing(self, run: Run) -> None:
        odd = {"step": 1, "classes": ["caf\udce9", "ℓ0"]}  # a folder whose name is Latin-1
        run.append(odd)
        run.rewind(1)
        run.save_runtime(odd)
        run.finish({}, odd)
        assert (run.metrics(), run.runtime(), run.result()) == ([odd], odd, odd)
        assert '"ℓ0"' in (run.folder / "result.json").read_text(encoding="utf-8")


class TestLock:
    def test_one_at_a_time(self, run: Run) -> None:
        message = r"another process is training in .*a; wait for it, or stop it"
        with locked(run.folder), pytest.raises(ValueError, match=message), locked(run.folder):
            pass
        with locked(run.folder):  # and it is free again
            pass

    def test_free_after_an_exception(self, run: Run) -> None:
        with pytest.raises(KeyboardInterrupt), locked(run.folder):
            raise KeyboardInterrupt
        with locked(run.folder):
            pass

    def test_another_process(self, run: Run) -> None:
        text = f"import pathlib, rvsm.records\nwith rvsm.records.locked(pathlib.Path({str(run.folder)!r})): pass"
        with locked(run.folder):
            refused = Process(run_code, text).ended()
        assert refused.status == 1
        assert "another process is training in" in refused.printed

    def test_leftovers_of_killed_processes_go(self, run: Run) -> None:
        names = (".metrics.jsonl.0123456789abcdef.tmp", "checkpoints/.step-1.safetensors.0123456789abcdef.tmp")
        left = [run.folder / name for name in names]
        for file in left:
            file.write_text("half")
        with locked(run.folder):
            assert not any(file.exists() for file in left)


class TestMetrics:
    def test_in_order(self, run: Run) -> None:
        for step in range(5):
            run.append({"step": step, "loss": 1 / 3})
        assert run.metrics() == [{"step": step, "loss": 1 / 3} for step in range(5)]

    def test_a_torn_last_line_at_every_length(self, run: Run) -> None:
        for step in (1, 2):
            run.append({"step": step, "text": "ℓ0"})
        file = run.folder / "metrics.jsonl"
        data = file.read_bytes()
        first = data.index(b"\n") + 1
        for length in range(first, len(data) - 1):
            file.write_bytes(data[:length])
            assert run.metrics() == [{"step": 1, "text": "ℓ0"}]

    def test_rewind_forgets_what_comes_after_and_mends_the_torn_line(self, run: Run) -> None:
        for step in (10, 20, 30):
            run.append({"step": step})
        with (run.folder / "metrics.jsonl").open("a") as file:
            file.write('{"step": 4')
        run.rewind(20)
        run.append({"step": 25})
        assert [record["step"] for record in run.metrics()] == [10, 20, 25]
        run.rewind(0)
        assert run.metrics() == []

    def test_rewind_before_there_are_any(self, run: Run) -> None:
        run.rewind(0)
        assert run.metrics() == []

    def test_lines_that_are_no_records(self, run: Run) -> None:
        (run.folder / "metrics.jsonl").write_bytes(b'\xff\n[1]\n\n{"step": 1}\n3\n')
        assert run.metrics() == [{"step": 1}]
        assert run.metrics_and_damage() == ([{"step": 1}], 3), "an empty line is no damage"

    def test_numbers_that_are_none(self, run: Run) -> None:
        run.append({"step": 1, "loss": float("inf")})
        assert run.metrics()[0]["loss"] == float("inf")


class TestCheckpoints:
    def test_two_are_kept(self, run: Run) -> None:
        for step in (5, 10, 100, 1_000_000_000):
            assert run.save(step, {"step": step}).is_file()
        assert [path.name for path in run.checkpoints()] == [
            "step-000000100.safetensors",
            "step-1000000000.safetensors",
        ]

    def test_the_newest_of_any_number_of_steps(self, run: Run) -> None:
        for step in (999_999_999, 1_000_000_000):
            run.save(step, {"step": step})
        assert run.newest() == ({"step": 1_000_000_000}, [])

    def test_the_same_step_twice(self, run: Run) -> None:
        run.save(5, {"part": 1})
        run.save(5, {"part": 2})
        assert run.newest() == ({"part": 2}, [])

    @pytest.mark.parametrize("contents", [b"", b"\0" * 100, b"x" * 1000])
    def test_the_one_before_a_damaged_one(self, run: Run, contents: bytes) -> None:
        run.save(5, {"step": 5})
        run.save(9, {"step": 9}).write_bytes(contents)
        state, complaints = run.newest()
        assert state == {"step": 5}
        assert len(complaints) == 1
        assert "step-000000009.safetensors cannot be read" in complaints[0]

    def test_all_damaged(self, run: Run) -> None:
        for step in (5, 9):
            run.save(step, {"step": step}).write_bytes(b"")
        state, complaints = run.newest()
        assert state is None
        assert ["000000009" in complaints[0], "000000005" in complaints[1]] == [True, True]

    def test_damaged_ones_are_put_aside_when_the_training_goes_on(self, run: Run) -> None:
        # As the newest by name, they would be kept in place of the good ones to come.
        run.save(5, {"step": 5})
        for step in (8, 9):
            (run.folder / "checkpoints" / f"step-00000000{step}.safetensors").write_bytes(b"damaged")
        run.rewind(5)
        assert [path.name for path in run.checkpoints()] == ["step-000000005.safetensors"]
        assert (run.folder / "checkpoints" / "step-000000009.safetensors.damaged").read_bytes() == b"damaged"
        run.save(6, {"step": 6})
        run.save(7, {"step": 7})
        assert run.newest() == ({"step": 7}, [])
        assert len(run.checkpoints()) == 2

    def test_all_damaged_and_begun_anew(self, run: Run) -> None:
        for step in (5, 9):
            run.save(step, {"step": step}).write_bytes(b"")
        run.rewind(0)
        run.save(2, {"step": 2})
        assert run.newest() == ({"step": 2}, [])

    def test_strangers_are_left_alone(self, run: Run) -> None:
        (run.folder / "checkpoints" / "notes.txt").write_text("mine")
        for step in range(4):
            run.save(step, {})
        assert (run.folder / "checkpoints" / "notes.txt").exists()

    def test_the_checkpoint_folder_was_removed(self, run: Run) -> None:
        (run.folder / "checkpoints").rmdir()
        assert run.newest() == (None, [])
        run.save(1, {"step": 1})
        assert run.newest()[0] == {"step": 1}


class TestResult:
    def test_finished(self, run: Run) -> None:
        run.save(9, {"step": 9})
        weights = {"conv": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last), "n": torch.tensor(3)}
        weights["tied"] = weights["conv"]
        run.finish(weights, {"test": {"w": {"accuracy": 0.9}}})
        assert run.status == "finished"
        assert run.result() == {"test": {"w": {"accuracy": 0.9}}}
        found = run.weights()
        assert all(torch.equal(found[name], weights[name]) for name in weights)
        assert run.checkpoints() == []

    def test_weights_before_there_are_any(self, run: Run) -> None:
        with pytest.raises(
            ValueError,
            match=r"model\.safetensors cannot be read \(.*\); check that it is complete and that the run is finished",
        ):
            run.weights()

    def test_the_result_comes_last(self, run: Run) -> None:
        save({"step": 9}, run.folder / "checkpoints" / "step-000000009.safetensors")
        with pytest.raises(TypeError):
            run.finish({"w": torch.ones(1)}, {"bad": object()})  # as if killed before the result
        assert run.status == "unfinished"
        assert run.newest()[0] == {"step": 9}
        assert torch.equal(run.weights()["w"], torch.ones(1))

    def test_files_can_be_read_by_others(self, run: Run) -> None:
        before = os.umask(0o022)
        try:
            run.finish({"w": torch.ones(1)}, {})
        finally:
            os.umask(before)
        for name in ("model.safetensors", "result.json"):
            assert (run.folder / name).stat().st_mode & 0o777 == 0o644

    def test_the_result_is_json(self, run: Run) -> None:
        run.finish({}, {"name": "ℓ0"})
        assert json.loads((run.folder / "result.json").read_text(encoding="utf-8")) == {"name": "ℓ0"}


@pytest.mark.parametrize(
    "name",
    ["a", "../../etc", "/etc/x", ".", "..", "", "学习", "a/b\\c", "x" * 500, "学" * 90, "\udce9", "-rf", "a\nb\0"],
)
def test_every_name_has_a_folder_within_the_runs(name: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, name, 3)
    assert folder.resolve().parent == tmp_path.resolve()
    assert folder.name.endswith("-s3")
    assert not folder.name.startswith(("-", "."))
    folder.mkdir()
