"""RNN, GRU and LSTM, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from rewriter.interpret.registry import Kernels

if TYPE_CHECKING:
    from collections.abc import Callable

    from rewriter.interpret.call import Call

    Activation = Callable[[Tensor], Tensor]
    #: Given the projected input (B, gates · H), the state and the direction, the next state.
    Cell = Callable[[Tensor, list[Tensor], int], list[Tensor]]

KERNELS = Kernels()

#: Name → a function of x, alpha and beta, with the defaults of the last two.
_ACTIVATIONS: dict[str, tuple[Callable[[Tensor, float, float], Tensor], float, float]] = {
    "relu": (lambda x, _, __: torch.relu(x), 0, 0),
    "tanh": (lambda x, _, __: torch.tanh(x), 0, 0),
    "sigmoid": (lambda x, _, __: torch.sigmoid(x), 0, 0),
    "affine": (lambda x, a, b: a * x + b, 1, 0),
    "leakyrelu": (lambda x, a, _: F.leaky_relu(x, a), 0.01, 0),
    "thresholdedrelu": (lambda x, a, _: torch.where(x > a, x, torch.zeros_like(x)), 1, 0),
    "scaledtanh": (lambda x, a, b: a * torch.tanh(b * x), 1, 1),
    "hardsigmoid": (lambda x, a, b: (a * x + b).clamp(0, 1), 0.2, 0.5),
    "elu": (lambda x, a, _: F.elu(x, a), 1, 0),
    "softsign": (lambda x, _, __: F.softsign(x), 0, 0),
    "softplus": (lambda x, _, __: F.softplus(x), 0, 0),
}


def _activations(call: Call, default: list[str], directions: int) -> list[list[Activation]]:
    """For each direction its functions; alphas and betas are in the order of the functions that take them."""
    names = [name.lower() for name in call.get("activations") or default * directions]
    alphas, betas = list(call.get("activation_alpha") or []), list(call.get("activation_beta") or [])
    limit = call.get("clip")
    made: list[Activation] = []
    for name in names:
        if name not in _ACTIVATIONS:
            raise call.unsupported(f"activation '{name}'")
        function, alpha, beta = _ACTIVATIONS[name]
        if name in ("affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu") and alphas:
            alpha = alphas.pop(0)
        if name in ("affine", "scaledtanh", "hardsigmoid") and betas:
            beta = betas.pop(0)

        def activation(
            x: Tensor,
            f: Callable[[Tensor, float, float], Tensor] = function,
            a: float = alpha,
            b: float = beta,
        ) -> Tensor:
            return f(x if limit is None else x.clamp(-limit, limit), a, b)

        made.append(activation)
    each = len(default)  # the schema's own default may name both directions
    return [made[i * each : (i + 1) * each] for i in range(directions)]


def _run(
    call: Call,
    x: Tensor,
    weight: Tensor,
    lengths: Tensor | None,
    initial: list[Tensor | None],
    cell: Cell,
) -> tuple[Tensor, ...]:
    """The first state of every step, then all last states; (…) as ``layout`` says."""
    batch_first = bool(call.get("layout", 0))
    if batch_first:
        x = x.transpose(0, 1)
        initial = [None if s is None else s.transpose(0, 1) for s in initial]
    steps, batch, _ = x.shape
    hidden = call["hidden_size"] if call.get("hidden_size") else _hidden(weight, call)
    direction = call["direction"]
    count = 2 if direction == "bidirectional" else 1
    if lengths is None:
        lengths = torch.full((batch,), steps, dtype=torch.int64)
    every: list[Tensor] = []
    last: list[list[Tensor]] = []
    for d in range(count):
        backwards = direction == "reverse" or d == 1
        states = [torch.zeros(batch, hidden, dtype=x.dtype) if s is None else s[d] for s in initial]
        projected = x @ weight[d].T
        rows: list[Tensor] = []
        for t in reversed(range(steps)) if backwards else range(steps):
            # Backwards, a shorter sequence starts at its own end: until then its state stays.
            live = (t < lengths)[:, None]
            new = cell(projected[t], states, d)
            states = [torch.where(live, n, o) for n, o in zip(new, states, strict=True)]
            rows.append(torch.where(live, new[0], torch.zeros_like(new[0])))
        every.append(torch.stack(rows[::-1] if backwards else rows))
        last.append(states)
    outputs = torch.stack(every, 1)  # (steps, directions, batch, hidden)
    finals = [torch.stack([states[i] for states in last]) for i in range(len(initial))]
    if batch_first:
        return (outputs.permute(2, 0, 1, 3), *(f.transpose(0, 1) for f in finals))
    return (outputs, *finals)


def _hidden(weight: Tensor, call: Call) -> int:
    return int(weight.shape[1]) // {"RNN": 1, "GRU": 3, "LSTM": 4}[call.op_type]


def _biases(bias: Tensor | None, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Those of the input and of the state, (directions, gates · hidden)."""
    if bias is None:
        zero = torch.zeros(weight.shape[:2], dtype=weight.dtype)
        return zero, zero
    return bias[:, : weight.shape[1]], bias[:, weight.shape[1] :]


@KERNELS.operator("RNN")
def rnn(
    call: Call,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
) -> tuple[Tensor, ...]:
    functions = _activations(call, ["Tanh"], w.shape[0])
    of_input, of_state = _biases(b, w)

    def cell(given: Tensor, states: list[Tensor], d: int) -> list[Tensor]:
        f = functions[d][0]
        return [f(given + of_input[d] + states[0] @ r[d].T + of_state[d])]

    return _run(call, x, w, lengths, [h], cell)


@KERNELS.operator("GRU")
def gru(
    call: Call,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Gates z, r, h; ``linear_before_reset`` multiplies by the reset gate after the state's product."""
    functions = _activations(call, ["Sigmoid", "Tanh"], w.shape[0])
    of_input, of_state = _biases(b, w)

    def cell(given: Tensor, states: list[Tensor], d: int) -> list[Tensor]:
        f, g = functions[d]
        (state,) = states
        z_in, r_in, h_in = (given + of_input[d]).chunk(3, -1)
        z_weight, r_weight, h_weight = r[d].chunk(3)
        z_bias, r_bias, h_bias = of_state[d].chunk(3)
        z = f(z_in + state @ z_weight.T + z_bias)
        reset = f(r_in + state @ r_weight.T + r_bias)
        if call["linear_before_reset"]:
            new = g(h_in + reset * (state @ h_weight.T + h_bias))
        else:
            new = g(h_in + (reset * state) @ h_weight.T + h_bias)
        return [(1 - z) * new + z * state]

    return _run(call, x, w, lengths, [h], cell)


@KERNELS.operator("LSTM")
def lstm(
    call: Call,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
    c: Tensor | None = None,
    p: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Gates i, o, f, c, with peepholes from the cell."""
    functions = _activations(call, ["Sigmoid", "Tanh", "Tanh"], w.shape[0])
    of_input, of_state = _biases(b, w)

    def cell(given: Tensor, states: list[Tensor], d: int) -> list[Tensor]:
        f, g, out = functions[d]
        state, memory = states
        i, o, forget, new = (given + of_input[d] + state @ r[d].T + of_state[d]).chunk(4, -1)
        peep = [0, 0, 0] if p is None else p[d].chunk(3)  # i, o, f
        i = f(i + peep[0] * memory)
        forget = 1 - i if call.get("input_forget", 0) else f(forget + peep[2] * memory)
        memory = forget * memory + i * g(new)
        return [f(o + peep[1] * memory) * out(memory), memory]

    return _run(call, x, w, lengths, [h, c], cell)
