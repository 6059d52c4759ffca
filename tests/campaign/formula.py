"""GPT-1 and its LSTM once more, as formulas over one sequence in float64; nothing of the package is used.

Sources: equations 1 to 5 of "Improving Language Understanding by Generative Pre-Training" (Radford et al., 2018), the
released code for the means of L1, and section 2 of the papers of GPT-2 and GPT-3 for norms and bands.
"""

import math

import torch

ACTIVATIONS = {
    "gelu_pytorch_tanh": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu": lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
    "relu": lambda x: torch.where(x > 0, x, torch.zeros_like(x)),
    "silu": lambda x: x / (1 + torch.exp(-x)),
}


# What parts of a block were called before; the campaign is also run on older trees, to see what it finds there.
OLDER_NAMES = {"attn.c_proj": "attn.o_proj", "mlp.c_fc": "mlp.up_proj", "mlp.c_proj": "mlp.down_proj"}


def plain_name(name: str) -> str:
    for older, newer in OLDER_NAMES.items():
        name = name.replace(older, newer)
    return name


class Formula:
    """The weights of a model as float64 leaves, and what they make of token ids."""

    def __init__(self, model: torch.nn.Module):
        self.config = model.config
        self.is_lstm = model.config.model_type == "gpt1-lstm"
        weights = {name: weight.detach().double().requires_grad_() for name, weight in model.named_parameters()}
        self.weights = {plain_name(name): weight for name, weight in weights.items()}

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.weights[plain_name(name)]

    def linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return x @ self[f"{name}.weight"].T + self[f"{name}.bias"]

    def norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + self.config.layer_norm_epsilon)
        return scaled * self[f"{name}.weight"] + self[f"{name}.bias"]

    def hidden(self, ids, positions=None, places=None, types=None) -> torch.Tensor:
        """`[n, D]` of the n real tokens of one sequence; `places` are those in its row, by which bands are counted."""
        embeddings = self["transformer.tokens_embed.weight"]
        x = embeddings[torch.tensor(ids)]
        if types is not None:
            x = x + embeddings[torch.tensor(types)]
        if self.is_lstm:
            for layer in range(self.config.num_hidden_layers):
                x = self.lstm_layer(f"transformer.h.{layer}", x)
            return x
        ranks = torch.arange(len(ids))
        x = x + self["transformer.positions_embed.weight"][ranks if positions is None else torch.tensor(positions)]
        places = ranks if places is None else torch.tensor(places)
        for layer in range(self.config.num_hidden_layers):
            x = self.block(f"transformer.h.{layer}", layer, x, places)
        return self.norm("transformer.ln_f", x) if self.config.do_layer_norm_before else x

    def block(self, name: str, layer: int, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        distances = places[:, None] - places[None]
        sees = distances >= 0
        layer_types = getattr(self.config, "layer_types", None)
        if layer_types and layer_types[layer] == "sliding_attention":
            sees = sees & (distances < self.config.sliding_window)

        def attend(x):
            size = self.config.hidden_size // self.config.num_attention_heads
            query, key, value = (self.linear(f"{name}.attn.{part}_proj", x) for part in "qkv")
            heads = []
            for start in range(0, self.config.hidden_size, size):
                part = slice(start, start + size)
                scores = query[:, part] @ key[:, part].T / math.sqrt(size)
                heads.append(scores.masked_fill(~sees, -math.inf).softmax(-1) @ value[:, part])
            return self.linear(f"{name}.attn.o_proj", torch.cat(heads, -1))

        def feed_forward(x):
            act = ACTIVATIONS[self.config.hidden_act]
            return self.linear(f"{name}.mlp.down_proj", act(self.linear(f"{name}.mlp.up_proj", x)))

        if self.config.do_layer_norm_before:
            x = x + attend(self.norm(f"{name}.ln_1", x))
            return x + feed_forward(self.norm(f"{name}.ln_2", x))
        x = self.norm(f"{name}.ln_1", x + attend(x))
        return self.norm(f"{name}.ln_2", x + feed_forward(x))

    def lstm_layer(self, name: str, x: torch.Tensor) -> torch.Tensor:
        x, units = self.norm(f"{name}.ln_1", x), self.config.lstm_hidden_size
        hidden, cell, outputs = x.new_zeros(units), x.new_zeros(units), []
        for token in x:
            gates = self[f"{name}.lstm.weight_ih_l0"] @ token + self[f"{name}.lstm.bias_ih_l0"]
            gates = gates + self[f"{name}.lstm.weight_hh_l0"] @ hidden + self[f"{name}.lstm.bias_hh_l0"]
            enter, forget, new, leave = gates.split(units)
            cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
            hidden = leave.sigmoid() * cell.tanh()
            outputs.append(hidden)
        return self.norm(f"{name}.ln_2", self.linear(f"{name}.c_proj", torch.stack(outputs)))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        head = self.weights.get("lm_head.weight", self["transformer.tokens_embed.weight"])
        return hidden @ head.T

    def task_logits(self, extracted: list[torch.Tensor | None]) -> torch.Tensor:
        """`[K]`, or `[C]` for multiple choice, of an example's sequences at their extract tokens; `None` is absent."""
        if self.config.traversal != "multiple_choice":
            return self.linear("task_head.score", sum(extracted))
        scores = [None if x is None else self.linear("task_head.score", x)[0] for x in extracted]
        return torch.stack([torch.tensor(-math.inf).double() if score is None else score for score in scores])

    def task_loss(self, logits: torch.Tensor, label) -> torch.Tensor:
        if self.config.problem_type == "multi_label_classification":
            label = torch.tensor(label).double()
            losses = -(label * logits.sigmoid().log() + (1 - label) * (-logits).sigmoid().log())
            return losses[label != -100].mean()
        if self.config.num_labels == 1 and self.config.traversal != "multiple_choice":
            return (logits[0] - label) ** 2
        return -logits.log_softmax(-1)[label]

    def lm_loss(self, hidden: torch.Tensor, ids: list[int], is_target: list[bool]) -> torch.Tensor:
        """Mean −log P of the targets among the real tokens after the first."""
        losses = -self.logits(hidden[:-1]).log_softmax(-1)[
            torch.arange(len(ids) - 1), torch.tensor(ids[1:], dtype=torch.long)
        ]
        chosen = torch.tensor(is_target[1:], dtype=torch.bool)
        return losses[chosen].mean() if chosen.any() else losses.sum() * 0
