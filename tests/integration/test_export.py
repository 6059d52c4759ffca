"""`torch.export` and ONNX programs give the model's numbers for other shapes and paddings than they were made with."""

import onnxruntime
import pytest
import torch
from support.tensors import close
from transformers import DynamicCache, GenerationConfig
from transformers.integrations.executorch import convert_and_export_with_cache, register_dynamic_cache_export_support

from modeling_gpt1 import GPT1DoubleHeadsModel, GPT1ForCausalLM, GPT1ForSequenceClassification, GPT1LSTMForCausalLM
from modeling_gpt1.modeling_gpt1 import CACHE

AUTO = torch.export.Dim.AUTO
DELIMITER = 99


def batch_of(shape: tuple[int, ...], seed: int) -> dict[str, torch.Tensor]:
    """Ids `shape` with one delimiter in each row, the first row padded on its right, the last on its left."""
    input_ids = torch.randint(1, 98, shape, generator=torch.Generator().manual_seed(seed))
    input_ids[..., 3] = DELIMITER
    attention_mask = torch.ones_like(input_ids)
    attention_mask[0, ..., -2:] = 0
    attention_mask[-1, ..., :2] = 0
    return {"input_ids": input_ids, "attention_mask": attention_mask}


def exported(model, batch, **dynamic_shapes) -> torch.nn.Module:
    every_size = {name: dict.fromkeys(range(batch[name].dim()), AUTO) for name in ("input_ids", "attention_mask")}
    program = torch.export.export(model, (), batch, dynamic_shapes={**every_size, **dynamic_shapes}, strict=False)
    return program.module()


@pytest.fixture
def exported_caches():
    """Lets `torch.export` take caches, in a way that transformers' exporters cannot go beside."""
    register_dynamic_cache_export_support()
    yield
    torch.utils._pytree._deregister_pytree_node(DynamicCache)
    torch.fx._pytree._deregister_pytree_flatten_spec(DynamicCache)


class TestTorchExport:
    @pytest.mark.parametrize(
        ("model_class", "fields", "sequences", "output"),
        [
            (GPT1ForCausalLM, {"use_cache": False}, (), "logits"),
            (GPT1ForSequenceClassification, {"num_labels": 3}, (), "logits"),
            (GPT1ForSequenceClassification, {"traversal": "similarity"}, (), "logits"),
            (GPT1DoubleHeadsModel, {"traversal": "multiple_choice"}, (3,), "task_logits"),
        ],
    )
    def test_a_program_gives_the_models_numbers_for_other_shapes_and_paddings(
        self, model_class, fields, sequences, output, tiny_model
    ):
        model = tiny_model(model_class, num_hidden_layers=1, delimiter_token_id=DELIMITER, **fields)
        program = exported(model, batch_of((2, *sequences, 7), seed=0))
        for shape in ((3, *sequences, 12), (5, *sequences, 9)):
            batch = batch_of(shape, seed=1)
            actual = program(**batch)
            expected = model(**batch)
            assert type(actual) is type(expected)
            close(actual[output], expected[output])

    @pytest.mark.parametrize("strict", [False, True])
    @pytest.mark.parametrize("model_class", [GPT1ForCausalLM, GPT1DoubleHeadsModel])
    def test_a_program_gives_the_models_loss_for_other_shapes(self, model_class, strict, tiny_model):
        def with_labels(shape, seed):
            batch = batch_of(shape, seed)
            labels = batch["input_ids"] if model_class is GPT1ForCausalLM else torch.arange(shape[0]).remainder(2)
            return {**batch, "labels": labels}

        model = tiny_model(model_class, num_hidden_layers=1, use_cache=False)
        batch = with_labels((2, 7), seed=0)
        sizes = {name: dict.fromkeys(range(tensor.dim()), AUTO) for name, tensor in batch.items()}
        program = torch.export.export(model, (), batch, dynamic_shapes=sizes, strict=strict).module()
        for shape in ((3, 12), (5, 9)):
            batch = with_labels(shape, seed=1)
            close(program(**batch).loss, model(**batch).loss)

    def test_a_classifier_without_a_mask_reads_other_lengths(self, tiny_model):
        model = tiny_model(GPT1ForSequenceClassification, num_hidden_layers=1)
        sizes = {"input_ids": dict.fromkeys(range(2), torch.export.Dim.DYNAMIC)}
        batch = {"input_ids": batch_of((2, 7), seed=0)["input_ids"]}
        program = torch.export.export(model, (), batch, dynamic_shapes=sizes, strict=False).module()
        input_ids = batch_of((3, 12), seed=1)["input_ids"]
        close(program(input_ids=input_ids).logits, model(input_ids).logits)

    def test_an_lstm_reads_whole_texts(self, tiny_model):
        model = tiny_model(GPT1LSTMForCausalLM)
        ids = batch_of((2, 7), seed=0)["input_ids"]
        program = torch.export.export(model, (ids,), {"use_cache": False}, strict=False).module()
        close(program(ids, use_cache=False).logits, model(ids).logits)
        for more in ({}, {"use_cache": False, "attention_mask": torch.ones_like(ids)}):
            with pytest.raises(ValueError, match="Pass `use_cache=False` and no `attention_mask`"):
                torch.export.export(model, (ids,), more, strict=False)

    def test_a_program_refuses_pairs_without_a_delimiter(self, tiny_model):
        model = tiny_model(GPT1ForSequenceClassification, traversal="similarity", delimiter_token_id=DELIMITER)
        program = exported(model, batch_of((2, 7), seed=0))
        with pytest.raises(RuntimeError, match="Similarity reads rows with one delimiter each."):
            program(**{**batch_of((2, 7), seed=0), "input_ids": torch.ones(2, 7, dtype=torch.int64)})

    def test_a_program_with_a_growing_cache_continues(self, tiny_model, exported_caches):
        model = tiny_model(GPT1ForCausalLM, num_hidden_layers=1)

        def first_then_rest(shape, seed, num_first):
            batch = batch_of(shape, seed)
            mask = batch["attention_mask"]
            first = model(batch["input_ids"][:, :num_first], mask[:, :num_first], use_cache=True)
            rest = {"input_ids": batch["input_ids"][:, num_first:], "attention_mask": mask}
            return {**rest, "past_key_values": first.past_key_values}, model(**batch).logits[:, num_first:]

        tokens = {0: AUTO, 2: AUTO}  # of keys and of values [B, H, T, D/H], for each layer
        step, _ = first_then_rest((2, 7), seed=0, num_first=4)
        program = exported(model, step, past_key_values=[[tokens], [tokens]])
        step, expected = first_then_rest((3, 12), seed=1, num_first=9)
        output = program(**step)
        close(output.logits, expected)
        assert output.past_key_values.get_seq_length() == 12

    def test_a_program_with_a_static_cache_inside_goes_token_by_token(self, tiny_model):
        model = tiny_model(GPT1ForCausalLM, num_hidden_layers=1)
        model.generation_config = GenerationConfig(
            use_cache=True, cache_implementation="static", cache_config={"batch_size": 1, "max_cache_len": 16}
        )
        program = convert_and_export_with_cache(model).module()
        input_ids = batch_of((1, 9), seed=0)["input_ids"]
        places = torch.arange(9)
        logits = [program(input_ids=input_ids[:, t : t + 1], cache_position=places[t : t + 1]) for t in range(9)]
        close(torch.cat(logits, dim=1), model(input_ids).logits)


@pytest.mark.parametrize("kind", ["Dynamo", "Onnx"])
def test_an_exported_generation_continues_any_cache(kind, tiny_model):
    """The graph of a step takes ids, positions, and the cache's keys and values, whatever made them."""
    exporters = pytest.importorskip("transformers.exporters", reason="transformers has no exporters yet")
    from transformers.exporters.utils import decompose_for_generation

    exporter, settings = getattr(exporters, f"{kind}Exporter"), getattr(exporters, f"{kind}Config")
    model = tiny_model(GPT1ForCausalLM, num_hidden_layers=1)
    sample = {"input_ids": torch.randint(1, 98, (2, 5)), "attention_mask": torch.ones(2, 5, dtype=torch.long)}
    # `export_for_generation` exports each of these parts; the step alone has a cache with tokens.
    _, inputs_of_step = decompose_for_generation(model, sample)["decode"]
    program = exporter().export(model, inputs_of_step, settings(dynamic=True))
    ids = torch.randint(1, 98, (3, 9))
    given = {
        "input_ids": ids[:, 8:],
        "position_ids": torch.full((3, 1), 8),
        "attention_mask": torch.ones_like(ids),
        CACHE: model(ids[:, :8], use_cache=True)[CACHE],
    }
    close(program(**given).logits, model(ids).logits[:, 8:])


class TestOnnx:
    @pytest.fixture
    def session(self, tmp_path):
        """Makes a session of ONNX Runtime with a model that was written by `torch.onnx.export`."""

        def make(model, output: str, batch: dict[str, torch.Tensor]) -> onnxruntime.InferenceSession:
            path = tmp_path / "model.onnx"
            names = {"input_names": list(batch), "output_names": [output]}
            sizes = dict.fromkeys(batch, {0: "batch", 1: "tokens"})
            torch.onnx.export(model, (), path, kwargs=batch, dynamic_shapes=sizes, dynamo=True, verbose=False, **names)
            return onnxruntime.InferenceSession(path)

        return make

    @pytest.mark.parametrize(
        ("model_class", "fields"),
        [
            (GPT1ForCausalLM, {"use_cache": False}),
            (GPT1ForSequenceClassification, {"traversal": "similarity", "num_labels": 1}),
        ],
    )
    def test_a_program_gives_the_models_numbers_for_other_shapes_and_paddings(
        self, model_class, fields, session, tiny_model
    ):
        model = tiny_model(model_class, num_hidden_layers=1, delimiter_token_id=DELIMITER, **fields)
        batch = batch_of((3, 12), seed=1)
        session = session(model, "logits", batch_of((2, 7), seed=0))
        (logits,) = session.run(None, {name: tensor.numpy() for name, tensor in batch.items()})
        # What a position of padding says differs between runtimes.
        seen = batch["attention_mask"].bool() if model_class is GPT1ForCausalLM else slice(None)
        close(torch.from_numpy(logits)[seen], model(**batch).logits[seen])

    def test_a_program_follows_the_positions_of_sequences_in_one_row(self, session, tiny_model):
        def packed(shape, seed):
            input_ids = batch_of(shape, seed)["input_ids"]
            return {"input_ids": input_ids, "position_ids": torch.arange(shape[1]).remainder(5).repeat(shape[0], 1)}

        model = tiny_model(GPT1ForCausalLM, num_hidden_layers=1, use_cache=False)
        batch = packed((3, 12), seed=1)
        session = session(model, "logits", packed((2, 7), seed=0))
        (logits,) = session.run(None, {name: tensor.numpy() for name, tensor in batch.items()})
        close(torch.from_numpy(logits), model(**batch).logits)
