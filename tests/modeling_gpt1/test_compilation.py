"""torch.compile over ragged batches: how many graphs are made, in training and in decoding; none the second time."""

import pytest
import torch
from support.finetuning import make_finetuning_trainer, settings_of
from torch._dynamo.backends.debugging import aot_eager
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import CompileConfig, GenerationConfig, StaticCache

import modeling_gpt1
from modeling_gpt1.modeling_gpt1 import GPT1Block
from modeling_gpt1.training.compilation import compiled_blocks, compiled_parts
from tokenization.batches.plan import plan_batch

LIMIT = 24  # positions of the tiny models


class CountedGraphs:
    """A backend that counts the graphs given to it; aot_eager would add the guards of the backward pass."""

    def __init__(self, with_backward: bool = False):
        torch._dynamo.reset()
        self.with_backward, self.number = with_backward, 0

    def __call__(self, graph_module, example_inputs):
        self.number += 1
        return aot_eager(graph_module, example_inputs) if self.with_backward else graph_module.forward

    def after_each(self, function, calls) -> list[int]:
        """Graphs made so far, after each call; `fullgraph` makes a break an error."""
        numbers = []
        for arguments in calls:
            function(arguments)
            numbers.append(self.number)
        return numbers


class Devices(TorchDispatchMode):
    """The devices of the tensors of all operations."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        tensors = filter(torch.is_tensor, tree_leaves((args, kwargs, result)))
        self.seen |= {str(tensor.device) for tensor in tensors}
        return result


def language_batch(num_rows: int, length: int) -> dict[str, torch.Tensor]:
    input_ids = torch.randint(1, 98, (num_rows, length), generator=torch.Generator().manual_seed(length))
    attention_mask = torch.ones_like(input_ids)
    attention_mask[0, length - 2 :] = 0
    labels = input_ids.masked_fill(attention_mask == 0, -100)
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


def task_batch(length: int) -> dict[str, torch.Tensor]:
    """Of 4 examples of 3 choices; the last choice of the first is absent."""
    shape = (4, 3, length)
    generator = torch.Generator().manual_seed(length)
    batch = {
        "input_ids": torch.randint(1, 98, shape, generator=generator),
        "attention_mask": torch.ones(shape, dtype=torch.int64),
        "mc_token_ids": torch.full(shape[:-1], length - 1),
        "labels": torch.tensor([0, 1, 0, 1]),
        "choice_mask": torch.ones(shape[:-1], dtype=torch.bool),
    }
    batch["attention_mask"][1, ..., length - 2 :] = 0
    batch["mc_token_ids"][1] = length - 3
    batch["choice_mask"][0, -1] = False
    batch["attention_mask"][0, -1] = 0
    return batch


def graphs_of_training(model, batches) -> list[int]:
    """Graphs made so far, after each batch, whose loss is that of the model without them."""
    graphs = CountedGraphs()
    compiled = torch.compile(model.train(), fullgraph=True, backend=graphs)

    def train(batch):
        loss = compiled(**batch).loss
        loss.backward()
        assert loss.item() == pytest.approx(model(**batch).loss.item(), rel=1e-5)

    return graphs.after_each(train, batches)


def with_item_counts(batches) -> list[dict]:
    """As Trainer counts: a tensor whose value changes at every step."""
    return [{**batch, "num_items_in_batch": torch.tensor(7 + step)} for step, batch in enumerate(batches)]


class TestTraining:
    def test_language_model_makes_two_graphs_for_all_lengths(self, tiny_model):
        """One for the first length, one for all others and for the last, smaller batch."""
        model = tiny_model(modeling_gpt1.GPT1ForCausalLM, num_hidden_layers=1)
        batches = [language_batch(4, length) for length in (8, 16, 24, 12, 20)] + [language_batch(3, 24)]
        numbers = graphs_of_training(model, with_item_counts(batches + batches))
        assert numbers[:5] == [1, 2, 2, 2, 2]
        assert numbers[5] <= 3
        assert numbers[6:] == [numbers[5]] * 6

    def test_chunks_of_the_loss_make_a_graph_for_a_power_of_two(self, tiny_model, monkeypatch):
        """With chunks of 20 targets, 28 to 92 places for targets are 1, 2 or 4 chunks."""
        monkeypatch.setattr(modeling_gpt1.loss_gpt1, "CHUNK_BYTES", 4 * 20 * 101)
        model = tiny_model(modeling_gpt1.GPT1ForCausalLM, num_hidden_layers=1)
        batches = with_item_counts(language_batch(4, length) for length in (9, 16, 24))
        graphs = CountedGraphs()
        compiled = torch.compile(model.train(), fullgraph=True, backend=graphs)
        for batch in batches:
            loss, expected = compiled(**batch).loss, model(**batch).loss
            assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
            gradient, expected_gradient = (torch.autograd.grad(of, model.lm_head.weight)[0] for of in (loss, expected))
            torch.testing.assert_close(gradient, expected_gradient, rtol=1e-4, atol=1e-6)
        assert graphs.number <= 4

    def test_double_heads_make_two_graphs_for_all_lengths(self, tiny_model):
        model = tiny_model(modeling_gpt1.GPT1DoubleHeadsModel, num_hidden_layers=1, traversal="multiple_choice")
        batches = [task_batch(length) for length in (8, 16, 24, 12)]
        assert graphs_of_training(model, with_item_counts(batches + batches)) == [1] + [2] * 7


class TestTrainers:
    """With `torch_compile` the blocks are compiled, in training alone, and batches keep their plans."""

    @pytest.fixture
    def graphs(self, monkeypatch):
        """Graphs that a trainer's backend was given."""
        graphs = CountedGraphs()
        monkeypatch.setattr(torch, "compile", lambda run, **given: COMPILE(run, **{**given, "backend": graphs}))
        return graphs

    @pytest.mark.parametrize("traversal", ["classification", "similarity", "multiple_choice"])
    def test_fine_tuning_needs_at_most_three_graphs(self, graphs, tmp_path, traversal):
        settings = {"max_steps": 10, "num_train_epochs": 8, "train_sampling_strategy": "random"}
        expected = make_finetuning_trainer(traversal, tmp_path, 3, 2, **settings)
        trainer = make_finetuning_trainer(traversal, tmp_path, 3, 2, torch_compile=True, **settings)
        shapes, numbers = self._train(trainer, graphs)
        assert len(set(shapes)) > 4  # of the tokens that are computed
        assert 1 <= numbers[-1] <= 3
        # A graph has masks or none: similarity shares a beginning in some batches alone.
        assert numbers[-1] == numbers[2] or traversal == "similarity"
        expected.train()
        for ours, theirs in zip(trainer.model.parameters(), expected.model.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
        again = type(trainer)(trainer.model, trainer.args, data_collator=trainer.data_collator)
        assert again._compiled_parts is not None
        assert trainer.data_collator.plan
        trainer.evaluate()
        assert graphs.number == numbers[-1]
        assert not any("forward" in vars(block) for block in trainer.model.modules())

    @pytest.mark.parametrize("is_packed", [False, True])
    def test_pretraining_needs_few_graphs(self, graphs, tmp_path, tiny_model, is_packed):
        batches = [language_batch(2, length) for length in (8, 16, 24, 12, 20, 8, 10, 14)]
        if is_packed:
            batches = [{**batch, "plan": plan_batch(batch["attention_mask"], [0, 0])} for batch in batches]
        model = tiny_model(modeling_gpt1.GPT1ForCausalLM, num_hidden_layers=2)
        settings = modeling_gpt1.GPT1PretrainingArguments(
            **settings_of(tmp_path, 1, 1, torch_compile=True, max_steps=8)
        )
        parts = {"data_collator": lambda rows: rows[0], "train_dataset": batches}
        trainer = modeling_gpt1.GPT1PretrainingTrainer(model, settings, **parts)
        shapes, numbers = self._train(trainer, graphs)
        computed = [int(batch["attention_mask"].sum()) if is_packed else batch["labels"].shape[1] for batch in batches]
        assert [shape[1] for shape in shapes] == computed
        assert numbers == [2] + [3] * 7  # of the blocks, for one length and for all, and of the loss

    def test_each_block_is_a_graph_of_its_own_where_something_happens_between_them(self, tiny_model, monkeypatch):
        model = tiny_model(modeling_gpt1.GPT1ForCausalLM)
        decoder, parts = model.transformer, compiled_parts(backend="eager")

        def is_one_graph() -> bool:
            with compiled_blocks(model, parts):
                are_apart = {"forward" in vars(block) for block in decoder.h}
                assert {"run_blocks" not in vars(decoder)} == are_apart
            assert not {"forward", "run_blocks"} & {*vars(decoder), *vars(decoder.h[0])}
            return are_apart == {False}

        model.gradient_checkpointing_enable()
        assert not is_one_graph()
        model.gradient_checkpointing_disable()
        with monkeypatch.context() as patch:
            patch.setattr(torch.distributed, "is_initialized", lambda: True)
            assert not is_one_graph()
            patch.setattr(torch.distributed, "is_available", lambda: False)  # then torch lacks the first
            assert is_one_graph()
        for number in (0, 3):  # recorded by hooks, of which the graph of the first call knows nothing
            assert is_one_graph()
            with compiled_blocks(model, parts):
                outputs = model(**language_batch(2, 8), output_hidden_states=number > 0)
            assert len(outputs.hidden_states or ()) == number
        assert not is_one_graph()

    @pytest.mark.parametrize("is_apart", [True, False])
    @pytest.mark.parametrize("place", ["block", "decoder", "instance"])
    def test_what_other_code_runs_in_place_of_a_forward_is_run(self, tiny_model, place, is_apart):
        def halved(base: type, name: str) -> type:
            return type(
                "Halved", (base,), {name: lambda self, *args, **kwargs: getattr(base, name)(self, *args, **kwargs) / 2}
            )

        model = tiny_model(modeling_gpt1.GPT1ForCausalLM).train()
        plain, block = model(**language_batch(2, 8)).loss.item(), model.transformer.h[-1]
        if place == "instance":
            block.forward = lambda *args, **kwargs: GPT1Block.forward(block, *args, **kwargs) / 2
        elif place == "block":
            block.__class__ = halved(GPT1Block, "forward")
        else:
            model.transformer.__class__ = halved(modeling_gpt1.GPT1Model, "run_blocks")
        if is_apart:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        expected, parts = model(**language_batch(2, 8)).loss.item(), compiled_parts(backend="eager")
        with compiled_blocks(model, parts), compiled_blocks(model, parts):
            assert model(**language_batch(2, 8)).loss.item() == pytest.approx(expected, abs=1e-5)
        assert abs(expected - plain) > 1e-3
        assert ("forward" in vars(block)) == (place == "instance")
        assert "run_blocks" not in vars(model.transformer)

    @staticmethod
    def _train(trainer, graphs) -> tuple[list[tuple[int, ...]], list[int]]:
        """Shape of the decoder's input in each micro-batch, and graphs made up to it."""
        shapes, numbers, step = [], [], trainer.training_step
        decoder = trainer.model.transformer
        decoder.register_forward_pre_hook(
            lambda _, args, given: shapes.append(tuple(given["input_ids"].shape)), with_kwargs=True
        )

        def training_step(model, inputs, *args):
            loss = step(model, inputs, *args)
            numbers.append(graphs.number)
            return loss

        trainer.training_step = training_step
        trainer.train()
        return shapes, numbers


COMPILE = torch.compile


class TestDecoding:
    @pytest.fixture
    def model(self, tiny_model):
        model = tiny_model(modeling_gpt1.GPT1ForCausalLM, tie_word_embeddings=False, num_hidden_layers=1)
        model.generation_config = GenerationConfig(pad_token_id=0)
        return model

    def test_a_static_cache_makes_two_graphs_for_prompts_and_one_for_all_steps(self, model):
        graphs, cache = CountedGraphs(), StaticCache(config=model.config, max_cache_len=LIMIT)
        compiled = torch.compile(model, fullgraph=True, backend=graphs)

        def prompt_and_steps(length: int) -> None:
            cache.reset()
            for num_new in (length, *[1] * (LIMIT - length)):
                compiled(torch.ones(2, num_new, dtype=torch.int64), past_key_values=cache)

        with torch.no_grad():
            assert graphs.after_each(prompt_and_steps, [4, 8, 16, 4]) == [2, 3, 3, 3]

    def test_twenty_tokens_are_one_graph_of_fixed_shapes(self, model):
        """What a CUDA graph needs: no break, nothing compiled again, no number among the inputs that may change."""
        counters, inputs = torch._dynamo.utils.counters, []
        torch._dynamo.reset()
        counters.clear()

        def backend(graph_module, example_inputs):
            inputs.append(example_inputs)
            return graph_module.forward

        step = torch.compile(model, fullgraph=True, backend=backend)
        prompt, tokens = torch.tensor([[5, 6, 7], [8, 9, 10]]), torch.arange(40).view(20, 2, 1)
        cache = StaticCache(config=model.config, max_cache_len=LIMIT)
        with torch.no_grad():
            expected = model(torch.cat([prompt, *tokens], 1)).logits[:, 3:]
            model(prompt, past_key_values=cache)
            logits = [step(token, past_key_values=cache).logits for token in tokens]
        torch.testing.assert_close(torch.cat(logits, 1), expected, atol=1e-5, rtol=1e-5)
        assert counters["stats"]["unique_graphs"] == len(inputs) == 1
        assert not counters["graph_break"]
        assert all(isinstance(given, torch.Tensor) for given in inputs[0])
        step(tokens[0][:1], past_key_values=StaticCache(config=model.config, max_cache_len=LIMIT))
        assert len(inputs) == 2  # negative control: another shape is compiled again

    @pytest.mark.skipif(not torch.backends.cuda.is_built(), reason="this torch has no CUDA")
    @pytest.mark.parametrize("has_mask", [False, True])
    def test_a_step_computes_on_the_device_alone(self, tiny_config, has_mask):
        """With tensors that say they lie on a GPU and have no values: reading one raises, and so does a CUDA graph."""
        with torch.device("meta"):
            model = modeling_gpt1.GPT1ForCausalLM(tiny_config()).eval()
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            model = model.to_empty(device="cuda")
            cache = StaticCache(config=model.config, max_cache_len=LIMIT)
            prompt, token, mask = (torch.ones(2, length, dtype=torch.int64, device="cuda") for length in (5, 1, 6))
            model(prompt, past_key_values=cache)
            with Devices() as devices:
                logits = model(token, attention_mask=mask if has_mask else None, past_key_values=cache).logits
            assert logits.shape == (2, 1, model.config.vocab_size)
            assert devices.seen == {"cuda:0"}
            with pytest.raises(DataDependentOutputException):  # negative control
                logits.max().item()

    def test_generate_compiles_its_steps_once(self, model):
        graphs = CountedGraphs()
        # `generate` copies the configuration, and an object in it too.
        compile_config = CompileConfig(backend=lambda *arguments: graphs(*arguments), mode=None, fullgraph=True)
        compile_config._compile_all_devices = True  # else on accelerators only

        def generate(length: int) -> None:
            input_ids = torch.randint(1, 98, (2, length), generator=torch.Generator().manual_seed(length))
            options = {"do_sample": False, "max_length": LIMIT, "cache_implementation": "static"}
            expected = model.generate(input_ids, do_sample=False, max_length=LIMIT)
            assert model.generate(input_ids, compile_config=compile_config, **options).tolist() == expected.tolist()

        assert graphs.after_each(generate, [5, 9, 3, 5]) == [1, 1, 1, 1]
