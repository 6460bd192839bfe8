"""The loop: the same losses however it runs, resuming to the bit, failing with a sentence."""

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch

from autonovel.base.chance import seeded
from autonovel.base.errors import AutonovelWarning, InputError, TrainingError
from autonovel.data.images import ImageSet
from autonovel.data.loader import DeviceImages, StreamedImages
from autonovel.machine import streams
from autonovel.machine.device import COMPILE_FROM, Mode
from autonovel.machine.jobs import side_by_side
from autonovel.methods.base import Task
from autonovel.methods.supervised import KnownClasses
from autonovel.models.net import Net, build
from autonovel.settings.augment import Augment
from autonovel.settings.joint import SwapSettings
from autonovel.settings.recipe import Model, Recipe
from autonovel.settings.recipes import get_recipe
from autonovel.training.engine import Epoch, train
from autonovel.training.step import State
from tests.tiny import joint_method, known_classes, pretraining

pytestmark = pytest.mark.usefixtures("flags_in_messages")

KINDS = ["rotation", "supervised", "pairs", "incremental", "swap", "swap-regrouped", "adam"]


def tiny_images(n: int = 96, size: int = 16, channels: int = 3) -> ImageSet:
    rng = np.random.default_rng(0)
    labels = np.where(np.arange(n) % 2, -1, np.arange(n) % 3)
    images = rng.integers(0, 128, (n, size, size, channels), dtype=np.uint8)
    images[:, : size // 2] += (60 * (np.arange(n) % 3)).astype(np.uint8)[:, None, None, None]
    return ImageSet.from_arrays(images, labels)


def tiny_recipe(kind: str, epochs: int = 2) -> Recipe:
    base = get_recipe("cifar10")
    joint = replace(base.joint, epochs=epochs, batch=32, lr=0.0005, consistency=5.0, ramp=2)
    if kind == "adam":
        joint = replace(joint, optimiser="adam", lr=0.0003)
    swaps = kind.startswith("swap")
    if swaps:
        vary = Augment("mixed", jitter=0.4, solarise=0.2, rotate=10.0)
        joint = SwapSettings(
            epochs=epochs,
            batch=32,
            lr=0.0005,
            weight_decay=1e-4,
            schedule="steps",
            augment=vary,
            heads=2,
            hidden=16,
            projection=8,
            small_views=1,
            regroups=int(kind == "swap-regrouped"),
            by_class=0.5 * (kind == "swap-regrouped"),
        )
    return replace(
        base,
        incremental=kind == "incremental",
        model=Model(width=8, head="cosine" if swaps else "linear"),
        pretrain=replace(base.pretrain, epochs=epochs, batch=16, lr=0.0005),
        supervised=replace(base.supervised, epochs=epochs, batch=16, lr=0.0005),
        joint=joint,
    )


def trained(
    kind: str, mode: Mode, epochs: int = 2, images: int = 96, **options: object
) -> tuple[Net, list[dict[str, object]]]:
    """A tiny network after some epochs, and the losses of each."""
    data, recipe = tiny_images(images), tiny_recipe(kind, epochs)
    with seeded(0):
        net = build(recipe.model, channels=3, size=16)
        if kind == "rotation":
            method = pretraining(recipe)
        else:
            method = known_classes(recipe, data.n_known)
            if kind != "supervised":
                method.prepare(net)
                method = joint_method(recipe, data.n_known, 2)
        method.prepare(net)
    net.to(mode.device, memory_format=torch.channels_last)
    losses: list[dict[str, object]] = []
    train(
        net,
        method,
        DeviceImages(data, mode.device),
        mode,
        key=(0, "joint"),
        on_epoch=lambda e: losses.append(e.losses),
        **options,
    )
    return net, losses


def assert_same_losses(first: list[dict[str, object]], second: list[dict[str, object]], rtol: float) -> None:
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_allclose(a[name], b[name], rtol=rtol, atol=1e-5, err_msg=name)


class Memory:
    """A checkpoint in memory."""

    def __init__(self) -> None:
        self.kept: tuple[State, int] | None = None

    def load(self) -> tuple[State, int] | None:
        return self.kept

    def save(self, state: State, epochs_done: int) -> None:
        self.kept = ({name: value.clone() for name, value in state.items()}, epochs_done)


@pytest.mark.parametrize("kind", KINDS)
def test_training_lowers_the_loss_and_keeps_frozen_weights(kind: str) -> None:
    compared = kind in ("supervised", "swap")  # the losses of the others need not fall within a few epochs
    net, losses = trained(kind, Mode.of("cpu"), epochs=12 if compared else 2)
    total = [sum(np.sum(v) for v in epoch.values()) for epoch in losses]
    assert np.isfinite(total).all()
    if compared:
        assert total[-1] < total[0]
    with seeded(0):
        fresh = build(tiny_recipe(kind).model, channels=3, size=16)
    frozen = kind != "rotation" and not kind.startswith("swap")
    for (name, now), before in zip(net.backbone.named_parameters(), fresh.backbone.parameters(), strict=True):
        moved = not torch.equal(now, before)
        assert moved == (not frozen or name.startswith("layer4")), name
    # statistics of frozen batch-norm go on moving
    assert not torch.equal(net.backbone.stem[1].running_mean, fresh.backbone.stem[1].running_mean)


@pytest.mark.parametrize(("kind", "threads"), [("rotation", 1), ("pairs", 2)])  # the latter has a thread that fetches
def test_an_interrupted_epoch_leaves_no_thread_behind(kind: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = torch.get_num_threads()
    monkeypatch.setitem(globals(), "DeviceImages", StreamedImages)
    before = set(threading.enumerate())
    begun: set[threading.Thread] = set()

    def interrupt(done: int, steps: int) -> None:
        begun.update(set(threading.enumerate()) - before)
        raise KeyboardInterrupt

    torch.set_num_threads(threads)
    try:
        with pytest.raises(KeyboardInterrupt):
            trained(kind, Mode(torch.device("cpu")), images=768, on_step=interrupt)
    finally:
        torch.set_num_threads(usual)
    assert len(begun) == threads
    for thread in begun:
        thread.join(10)
    assert not any(thread.is_alive() for thread in begun)


@pytest.mark.parametrize("kind", KINDS)
def test_interrupted_training_ends_bit_identical(kind: str) -> None:
    whole, _ = trained(kind, Mode.of("cpu"), epochs=3, images=48)
    memory = Memory()

    class Stop(Exception):
        pass

    data, recipe = tiny_images(48), tiny_recipe(kind, 3)

    def start() -> tuple[Net, object]:
        with seeded(0):
            net = build(recipe.model, channels=3, size=16)
            method = pretraining(recipe) if kind == "rotation" else known_classes(recipe, data.n_known)
            if kind not in ("rotation", "supervised"):
                method.prepare(net)
                method = joint_method(recipe, data.n_known, 2)
            method.prepare(net)
        return net.to(memory_format=torch.channels_last), method

    def stop_after_first(epoch: object) -> None:
        raise Stop

    mode, images = Mode.of("cpu"), DeviceImages(data, torch.device("cpu"))
    for _ in range(2):
        net, method = start()
        with pytest.raises(Stop):
            train(net, method, images, mode, key=(0, "joint"), checkpoint=memory, on_epoch=stop_after_first)
    assert memory.kept is not None
    assert memory.kept[1] == 2
    net, method = start()
    train(net, method, images, mode, key=(0, "joint"), checkpoint=memory)
    for (name, value), expected in zip(net.state_dict().items(), whole.state_dict().values(), strict=True):
        assert torch.equal(value, expected), name


@pytest.mark.parametrize("kind", ["supervised", "pairs", "incremental"])
def test_the_next_batch_shown_in_a_second_thread_changes_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        beside, losses = trained(kind, Mode(torch.device("cpu")), epochs=4)
        assert torch.get_num_threads() == 2
        monkeypatch.setattr(streams, "_in_main_thread", lambda: False)
        torch.set_num_threads(1)
        one_after_the_other, expected = trained(kind, Mode(torch.device("cpu")), epochs=4)
    finally:
        torch.set_num_threads(threads)
    assert losses == expected
    for (name, value), other in zip(
        beside.state_dict().items(), one_after_the_other.state_dict().values(), strict=True
    ):
        assert torch.equal(value, other), name


def test_an_error_in_the_second_thread_ends_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fail(self: DeviceImages) -> None:
        calls.append(threading.current_thread())
        if len(calls) == 3:
            raise InputError("The disk is gone.")

    monkeypatch.setattr(DeviceImages, "fetch", fail)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with pytest.raises(InputError, match="The disk is gone"):
            trained("pairs", Mode(torch.device("cpu")), epochs=2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert threading.main_thread() not in calls
    assert not any(thread.is_alive() for thread in calls)


def test_loss_that_is_not_finite_stops_with_a_sentence_and_keeps_the_last_good_state() -> None:
    data, recipe = tiny_images(), tiny_recipe("supervised", 3)
    with seeded(0):
        net = build(recipe.model, channels=3, size=16)
        method = known_classes(recipe, data.n_known)
        method.prepare(net)
    memory = Memory()
    images = DeviceImages(data, torch.device("cpu"))

    def poison(epoch: object) -> None:
        with torch.no_grad():
            net.heads["known"].weight.fill_(float("nan"))

    with pytest.raises(TrainingError, match=r"not finite in epoch 2 .*--supervised\.lr"):
        train(net, method, images, Mode.of("cpu"), key=(0, "supervised"), checkpoint=memory, on_epoch=poison)
    assert memory.kept is not None
    state, done = memory.kept
    assert done == 1
    assert all(value.isfinite().all() for value in state.values())


def test_an_epoch_is_told_before_it_is_kept() -> None:
    # the other way round, a run killed in between goes on without any record of that epoch's losses
    events: list[tuple[str, int]] = []

    class Recorder(Memory):
        def save(self, state: State, epochs_done: int) -> None:
            events.append(("kept", epochs_done))

    data, recipe = tiny_images(), tiny_recipe("supervised", 3)
    with seeded(0):
        net = build(recipe.model, channels=3, size=16)
        method = known_classes(recipe, data.n_known)
        method.prepare(net)
    train(
        net,
        method,
        DeviceImages(data, torch.device("cpu")),
        Mode.of("cpu"),
        key=(0, "supervised"),
        checkpoint=Recorder(),
        on_epoch=lambda epoch: events.append(("told", epoch.number + 1)),
        checkpoint_seconds=0,
    )
    assert events == [(event, number) for number in (1, 2, 3) for event in ("told", "kept")]


@pytest.mark.parametrize(("compile_from", "compiled_before_epoch"), [(0.0, 0), (1e-9, 1), (1e9, None)])
def test_a_step_is_compiled_when_the_rest_of_the_stage_is_long_enough(
    compile_from: float, compiled_before_epoch: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []
    compiled_after: list[int] = []

    def compile_nothing(function: object, **options: object) -> object:
        compiled_after.append(len(told))
        return function

    monkeypatch.setattr(torch, "compile", compile_nothing)
    data, recipe = tiny_images(), tiny_recipe("supervised", 3)
    nets = []
    for mode in (Mode(torch.device("cpu")), Mode(torch.device("cpu"), compiled=True, compile_from=compile_from)):
        with seeded(0):
            net = build(recipe.model, channels=3, size=16)
            method = known_classes(recipe, data.n_known)
            method.prepare(net)
        told.clear()
        train(net, method, DeviceImages(data, mode.device), mode, key=(0, "supervised"), on_epoch=told.append)
        nets.append(net)
    assert set(compiled_after) == (set() if compiled_before_epoch is None else {compiled_before_epoch})
    for (name, value), expected in zip(nets[1].state_dict().items(), nets[0].state_dict().values(), strict=True):
        assert torch.equal(value, expected), name


@pytest.mark.parametrize("compile_from", [0.0, 1e-9])
def test_a_step_that_cannot_be_compiled_goes_on_without(compile_from: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_with_no_compiler(function: Callable[..., object], **options: object) -> object:
        def fail(*args: object) -> object:
            result = function(*args)  # batch statistics have moved when it fails
            if isinstance(result, list):  # what the step sees; the losses come after it
                return result
            raise RuntimeError("Failed to find C compiler.\nPlease specify via CC environment variable.")

        return fail

    expected, _ = trained("pairs", Mode(torch.device("cpu")), epochs=3)
    monkeypatch.setattr(torch, "compile", compile_with_no_compiler)
    with pytest.warns(AutonovelWarning, match=r"could not be compiled \(Failed to find C compiler\.\)"):
        net, losses = trained("pairs", Mode(torch.device("cpu"), compiled=True, compile_from=compile_from), epochs=3)
    assert len(losses) == 3
    for (name, value), other in zip(net.state_dict().items(), expected.state_dict().values(), strict=True):
        assert torch.equal(value, other), name


def test_a_resumed_training_is_compiled_after_its_first_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    def compile_nothing(function: object, **options: object) -> object:
        told.append("compiled")
        return function

    class Stop(Exception):
        pass

    def stop_after_second(epoch: Epoch) -> None:
        if epoch.number == 1:
            raise Stop

    monkeypatch.setattr(torch, "compile", compile_nothing)
    mode, memory = Mode(torch.device("cpu"), compiled=True, compile_from=1e-9), Memory()
    data, recipe = DeviceImages(tiny_images(), mode.device), tiny_recipe("supervised", 4)

    def start(on_epoch: Callable[[Epoch], None]) -> None:
        with seeded(0):
            net = build(recipe.model, channels=3, size=16)
            method = known_classes(recipe, 3)
            method.prepare(net)
        train(net, method, data, mode, key=(0, "s"), checkpoint=memory, on_epoch=on_epoch, on_message=told.append)

    with pytest.raises(Stop):
        start(stop_after_second)
    told.clear()
    start(lambda epoch: told.append(f"epoch {epoch.number}"))
    assert [told[0], "compiling" in told[1], *told[2:]] == ["epoch 2", True, "compiled", "compiled", "epoch 3"]


@pytest.mark.parametrize(
    ("step", "compiled", "compile_from", "captured"),
    [
        ("", True, COMPILE_FROM, True),
        ("eager", False, None, False),
        ("captured", False, None, True),
        ("compiled", True, 0.0, True),
    ],
)
def test_the_environment_chooses_how_a_step_is_run(
    step: str, compiled: bool, compile_from: float | None, captured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("AUTONOVEL_STEP", step)
    mode = Mode.of("cuda")
    assert (mode.compiled, mode.captured) == (compiled, captured)
    assert compile_from is None or mode.compile_from == compile_from


def test_an_unknown_way_to_run_a_step_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("AUTONOVEL_STEP", "Eager")
    with pytest.raises(InputError, match="AUTONOVEL_STEP is 'Eager'; choose one of eager, captured, compiled"):
        Mode.of("cuda")


def test_unknown_device_is_refused() -> None:
    with pytest.raises(InputError, match="no device 'tpu'"):
        Mode.of("tpu")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="--device cpu"):
            Mode.of("cuda")


@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_on_the_cpu_stays_close_to_float32(kind: str) -> None:
    exact = Mode(torch.device("cpu"))
    fast = replace(exact, precision=torch.bfloat16)
    assert_same_losses(trained(kind, fast, epochs=1)[1], trained(kind, exact, epochs=1)[1], rtol=0.05)


def test_tiny_images_stay_in_float32_on_the_cpu() -> None:
    mode = Mode(torch.device("cpu"), torch.bfloat16)
    assert [mode.precision_for(side) for side in (8, 15, 16, 32)] == [torch.float32] * 2 + [torch.bfloat16] * 2
    assert Mode(torch.device("cuda"), torch.bfloat16).precision_for(8) == torch.bfloat16


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_eager_compiled_and_captured_steps_give_the_same_losses(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    warnings.simplefilter("error", AutonovelWarning)  # what says that compiling failed
    plain = Mode(torch.device("cuda"))
    _, eager = trained(kind, plain)
    later = replace(plain, compiled=True, captured=True, compile_from=1e-9)
    for mode in (replace(plain, captured=True), replace(later, compile_from=0.0), later):
        assert_same_losses(trained(kind, mode)[1], eager, rtol=2e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_gpu_and_cpu_give_the_same_losses(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    assert_same_losses(
        trained(kind, Mode(torch.device("cuda")))[1], trained(kind, Mode(torch.device("cpu")))[1], rtol=5e-3
    )


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["rotation", "pairs", "swap"])
def test_the_next_batch_shown_beside_learning_changes_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    captured = replace(Mode(torch.device("cuda")), captured=True)
    beside, losses = trained(kind, captured, epochs=20)
    own_streams = streams._own_streams

    @contextmanager
    def one_stream(device: torch.device) -> Iterator[tuple[torch.cuda.Stream, torch.cuda.Stream]]:
        with own_streams(device) as (main, _):
            yield main, main

    monkeypatch.setattr(streams, "_own_streams", one_stream)
    one_after_the_other, expected = trained(kind, captured, epochs=20)
    assert_same_losses(losses, expected, rtol=1e-4)
    for (name, value), other in zip(
        beside.state_dict().items(), one_after_the_other.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(value, other, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.gpu
def test_a_captured_step_sees_streamed_images_as_those_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    captured = replace(Mode(torch.device("cuda")), captured=True)
    _, on_device = trained("pairs", captured, epochs=10)
    monkeypatch.setitem(globals(), "DeviceImages", StreamedImages)
    _, streamed = trained("pairs", captured, epochs=10)
    assert_same_losses(streamed, on_device, rtol=1e-4)


@pytest.mark.gpu
def test_captured_trainings_side_by_side_give_what_they_give_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many short ones, more than there are lanes: a difference of 1e-7 in the weights, as another rounding makes it, is one of
    2e-7 in the losses of swap after two epochs, but of 1e-3 after five."""
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    captured = replace(Mode(torch.device("cuda")), captured=True)
    kinds = ["pairs", "swap", "rotation", "pairs", "supervised"]
    alone = {kind: trained(kind, captured)[1] for kind in kinds}
    together = side_by_side([lambda k=kind: trained(k, captured)[1] for kind in kinds * 4])
    for kind, losses in zip(kinds * 4, together, strict=True):
        assert_same_losses(losses, alone[kind], rtol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["rotation", "pairs"])
def test_what_is_compiled_serves_any_number_of_images(kind: str) -> None:
    from torch._dynamo.utils import counters

    mode = Mode(torch.device("cuda"), compiled=True, captured=True)
    for images in (96, 160):
        torch._dynamo.reset()
        counters.clear()
        trained(kind, mode, epochs=1, images=images)
    assert counters["aot_autograd"]["autograd_cache_hit"] == 2
    assert not counters["aot_autograd"]["autograd_cache_miss"]


@pytest.mark.gpu
def test_fast_mode_stays_close_to_float32() -> None:
    _, exact = trained("swap", Mode(torch.device("cuda")), epochs=1)
    _, fast = trained("swap", Mode.of("cuda"), epochs=1)
    assert_same_losses(exact, fast, rtol=0.05)


def test_an_image_that_an_epoch_shows_again_is_varied_anew() -> None:
    """Seen by a method that keeps what it is shown of image 0 in the two steps of an epoch."""

    class Watching(KnownClasses):
        def order(self, labels, *key):
            return torch.tensor([[0, 1], [0, 2]])

        def views(self, batch, key):
            shown = super().views(batch, key)
            seen.append(shown[0][0].clone())
            return shown

    seen: list[torch.Tensor] = []
    data, recipe = tiny_images(), tiny_recipe("supervised", 1)
    with seeded(0):
        net = build(recipe.model, channels=3, size=16)
        method = Watching(Task(recipe, data.n_known))
        method.prepare(net)
    train(net, method, DeviceImages(data, torch.device("cpu")), Mode.of("cpu"), key=(0, "supervised"))
    *_, first, second = seen  # before them, the warm-up
    assert first.shape == second.shape
    assert not torch.equal(first, second)


class Counting(KnownClasses):
    """Counts steps and epochs in a tensor of its own, and lets the count into the loss."""

    def prepare(self, net: Net) -> None:
        super().prepare(net)
        self.register_buffer("steps", torch.zeros(()))
        self.register_buffer("epochs", torch.zeros(()))

    def start_epoch(self, net, look, epoch):
        self.epochs += len(look.labels) / 96

    def losses(self, net, seen, ramp):
        assert seen.index.shape == seen.labels.shape
        return {name: loss * (1 + self.steps + self.epochs) for name, loss in super().losses(net, seen, ramp).items()}

    def after_step(self, net):
        self.steps += 1


class Labels:
    """All that the hook of :class:`Counting` asks for."""

    seed = 0

    def __init__(self, data: ImageSet) -> None:
        self.labels = torch.from_numpy(data.labels)


def test_what_a_method_keeps_for_itself_is_in_the_checkpoint_and_hooks_are_called() -> None:
    data, recipe = tiny_images(), tiny_recipe("supervised", 4)
    images, mode = DeviceImages(data, torch.device("cpu")), Mode.of("cpu")

    def make() -> tuple[Net, Counting]:
        with seeded(0):
            net = build(recipe.model, channels=3, size=16)
            method = Counting(Task(recipe, data.n_known))
            method.prepare(net)
        return net, method

    class Kept:
        state = None

        def load(self):
            return self.state

        def save(self, state, epochs_done):
            self.state = ({name: value.clone() for name, value in state.items()}, epochs_done)

    def stop(epoch: Epoch) -> None:
        if epoch.number == 1:
            raise KeyboardInterrupt

    net, method = make()
    train(net, method, images, mode, key=(0, "supervised"), look=Labels(data))
    steps = len(method.order(torch.from_numpy(data.labels), 0))
    assert method.steps == 4 * steps  # the warm-up step does not count
    assert method.epochs == 4
    kept = Kept()
    other, interrupted = make()
    with pytest.raises(KeyboardInterrupt):
        train(
            other, interrupted, images, mode, key=(0, "supervised"), look=Labels(data), checkpoint=kept, on_epoch=stop
        )
    again, resumed = make()
    train(again, resumed, images, mode, key=(0, "supervised"), look=Labels(data), checkpoint=kept)
    assert resumed.steps == method.steps
    assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), again.state_dict().values(), strict=True))
