"""The rules that move weights do what torch.optim does."""

import subprocess
import sys

import pytest
import torch

from autonovel.settings.joint import Joint
from autonovel.training.optimiser import SGD, Adam, TorchOptim, make_optimiser

SHAPES = [(5, 3), (7,), (), (4, 3, 3, 3), (2,)]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
@pytest.mark.parametrize(
    "rule",
    ["sgd", "nesterov", "adam"],
)
def test_weights_move_as_with_torch(
    rule: str,
    weight_decay: float,
    fused: bool,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not fused:  # a torch that no longer has its private functions
        for name in (*SGD.NEEDS, *Adam.NEEDS):
            monkeypatch.delattr(torch, name)
    settings = Joint(optimiser=rule, lr=0.1, weight_decay=weight_decay)
    generator = torch.Generator().manual_seed(0)

    def draw() -> list[torch.Tensor]:
        drawn = [torch.randn(shape, generator=generator).to(device) for shape in SHAPES]
        return [x.to(memory_format=torch.channels_last) if x.dim() == 4 else x for x in drawn]

    start = draw()
    mine = [x.clone().requires_grad_() for x in start]
    theirs = [x.clone().requires_grad_() for x in start]
    optimiser = make_optimiser(mine, settings)
    assert isinstance(optimiser, TorchOptim) != fused
    memory = {name: list(kept) for name, kept in optimiser.memory.items()}
    oracle: torch.optim.Optimizer
    if rule == "adam":
        oracle = torch.optim.Adam(theirs, 0.1, weight_decay=weight_decay, foreach=False)
    else:
        oracle = torch.optim.SGD(theirs, 0.1, 0.9, 0, weight_decay, rule == "nesterov", foreach=False)
    for number in range(6):
        lr = 0.1 / (number + 1)
        optimiser.lr.fill_(lr)
        oracle.param_groups[0]["lr"] = lr
        for a, b, gradient in zip(mine[:-1], theirs[:-1], draw()[:-1], strict=True):  # the last one has no gradient
            a.grad, b.grad = gradient.clone(), gradient.clone()
        optimiser.step()
        oracle.step()
        for a, b in zip(mine, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6 if fused or device == "cpu" else 1e-5)
        for (
            name,
            kept,
        ) in memory.items():  # changed in place, with the values that torch keeps, for a checkpoint to find
            for i, tensor in enumerate(kept[:-1]):
                assert tensor is optimiser.memory[name][i]
                expected = oracle.state[theirs[i]][name].to(device)
                torch.testing.assert_close(tensor, expected, rtol=1e-5, atol=1e-6)
    assert all(not kept[-1].any() for kept in memory.values())
    assert torch.equal(mine[-1], start[-1])
    assert all(not torch.equal(a, b) for a, b in zip(mine[:-1], start[:-1], strict=True))


@pytest.mark.parametrize("rule", ["sgd", "adam"])
def test_training_resumes_with_or_without_the_fused_operations(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Joint(optimiser=rule, lr=0.1, weight_decay=0.01)
    gradients = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))

    def walk(*without: int) -> torch.Tensor:
        """Six steps; at the numbered ones the fused operations are missing, and all starts again from the kept tensors."""
        weight, kept = torch.ones(5), {}
        for number, gradient in enumerate(gradients):
            with monkeypatch.context() as patch:
                for name in (*SGD.NEEDS, *Adam.NEEDS) if number in without else ():
                    patch.delattr(torch, name)
                weight = weight.clone().requires_grad_()
                optimiser = make_optimiser([weight], settings)
                for name, [value] in kept.items():
                    optimiser.memory[name][0].copy_(value)
                weight.grad = gradient
                optimiser.step()
                weight, kept = weight.detach(), optimiser.memory
        return weight

    torch.testing.assert_close(walk(2, 3, 5), walk(), rtol=1e-5, atol=1e-6)


def test_a_step_that_is_not_compiled_does_not_import_the_compiler() -> None:
    program = """
import sys
from autonovel.machine.device import Mode
from tests.training.test_engine import trained
if "torch._dynamo" in sys.modules:
    sys.exit("imported by the test itself")
trained("adam", Mode.of("cpu"), epochs=1)
sys.exit("imported by training" if "torch._dynamo" in sys.modules else 0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
