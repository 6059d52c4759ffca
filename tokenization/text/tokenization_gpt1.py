"""GPT-1's tokenizer: the paper's preparation of text and its BPE as one native `tokenizers` pipeline.

Follows section 4.1 of "Improving Language Understanding by Generative Pre-Training" (Radford et al. 2018) and the
released `text_utils.py` (https://github.com/openai/finetune-transformer-lm/blob/master/text_utils.py). The rules
for words are in `word_rules.py`; the saved `tokenizer.json` contains all of it.
"""

import os
from collections.abc import Iterable

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import (
    AutoTokenizer,
    BatchEncoding,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TokenizersBackend,
)
from transformers.models.auto.tokenization_auto import get_tokenizer_config
from transformers.utils import logging

from ..errors import UserError
from .bpe_training import DEFAULT_MERGES, check_num_merges, count_words, learn_merges, texts_to_learn_from
from .control_tokens import (
    CONTROL_TOKENS,
    add_control_tokens,
    any_word,
    control_templates,
    keep_text_as_text,
    pad_with_end_of_text,
)
from .conversations import SPEAKER_TOKENS, encode_chats, write_conversation
from .encodings_on_demand import encode_ids_first
from .joining import join_continuation, join_words
from .word_rules import preparation

logger = logging.get_logger(__name__)

END_OF_WORD = "</w>"
NEWLINE = "\n" + END_OF_WORD
# transformers' own tokenizer prepares text differently from the released code: GPT1Tokenizer replaces it.
GPT1_CLASSES = ("GPT1Tokenizer", "OpenAIGPTTokenizer", "OpenAIGPTTokenizerFast")
GPT1_TYPES = (None, "gpt1", "gpt1-lstm", "openai-gpt")  # None: a folder of a tokenizer alone
ANY_WORD = "word"
CHAT_PADDING = ("padding_side", "pad_to_multiple_of")  # the arguments in `tokenizer_kwargs` of a conversation
CACHED_WORDS = 1 << 15  # five novels have half as many words; the library keeps 10,000


class GPT1Tokenizer(TokenizersBackend):
    """Encodes text as GPT-1's ids: prepared as by the released code, lower case, BPE with `</w>` at the end of a word.

    Args:
        vocab (`dict[str, int]` or path, *optional*): token to id; only the unknown token if left out.
        merges (`list[tuple[str, str]]` or path, *optional*): the merges, most frequent first.
        unk_token (`str`, defaults to `"<unk>"`): stands for a character that the vocabulary does not have.
        pad_token (`str`, defaults to `"<unk>"`): id 0, as the released code pads; the attention mask hides it.
        bos_token (`str`, defaults to `"<unk>"`): id 0, named for tools that condition the first word on it. No text
            gets it, also none that this package trains on, unless the tokenizer is opened with `add_bos_token=True`.
        do_lower_case (`bool`, defaults to `True`): lower the case of texts, as the paper's vocabulary needs.
        kwargs: further arguments of `TokenizersBackend`; `start_token`, `delimiter_token` and `extract_token` name the
            control tokens of a tokenizer for fine-tuning (see `add_control_tokens`).

    Text never becomes a control token or the unknown token, whatever it spells: `split_special_tokens` is always on,
    even where `AutoTokenizer` opens the folder without this package. Only there can `split_special_tokens=False` turn
    it off, for one call or for good; text that spells `[e]` then becomes the control token. A bare
    `tokenizers.Tokenizer.from_file` ignores the setting: set its `encode_special_tokens = True`. Words of `add_tokens`
    are found as they are written, capitals included.

    `decode(…, clean_up_tokenization_spaces=True)` joins words and punctuation: `"don't," she said` instead of
    `" do n't , " she said`. If the attribute `goes_on` is set, as by `pipeline("text-generation", folder)`, texts are
    prompts, encoded without control tokens, and decoded text is their continuation: its words are joined, and it
    begins with a space where its first word needs one.

    Examples:
        >>> from tokenization import GPT1Tokenizer
        >>> tokenizer = GPT1Tokenizer.train(iter(["Don't go."] * 2), num_merges=50)
        >>> tokenizer.tokenize("Don't go.")
        ['do</w>', "n't</w>", 'go</w>', '.</w>']
    """

    vocab_files_names = {"vocab_file": "vocab.json", "merges_file": "merges.txt", "tokenizer_file": "tokenizer.json"}
    model_input_names = ["input_ids", "attention_mask"]
    model = BPE
    SPECIAL_TOKENS_ATTRIBUTES = [*TokenizersBackend.SPECIAL_TOKENS_ATTRIBUTES, *CONTROL_TOKENS, *SPEAKER_TOKENS]

    def __init__(
        self,
        vocab: dict[str, int] | str | os.PathLike | None = None,
        merges: list[tuple[str, str]] | str | os.PathLike | None = None,
        unk_token: str = "<unk>",
        pad_token: str = "<unk>",
        do_lower_case: bool = True,
        **kwargs,
    ):
        if vocab is None:
            vocab = {str(unk_token): 0}
        bpe = BPE(
            vocab=vocab,
            merges=merges or [],
            cache_capacity=CACHED_WORDS,
            end_of_word_suffix=END_OF_WORD,
            unk_token=str(unk_token),
        )
        self._tokenizer = Tokenizer(bpe)
        _prepare(self._tokenizer, do_lower_case)
        self.do_lower_case = do_lower_case
        if not do_lower_case:
            kwargs["do_lower_case"] = False  # is saved
        kwargs["split_special_tokens"] = True
        kwargs.pop("auto_map", None)  # of whoever saved it; not to be published with what is saved next
        self._ends_given = "add_bos_token" in kwargs or "add_eos_token" in kwargs
        # GPT-1 names neither, but tools that score and generate read both.
        kwargs.setdefault("bos_token", kwargs.get("start_token", unk_token))
        kwargs.setdefault("eos_token", kwargs.get("extract_token", unk_token))
        self.goes_on = False
        super().__init__(unk_token=unk_token, pad_token=pad_token, **kwargs)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | os.PathLike, *args, **kwargs) -> "GPT1Tokenizer":
        """As in transformers: a folder or hub id with `tokenizer.json`, or with `vocab.json` and `merges.txt`.

        Raises:
            ValueError: none of these files is there, or they belong to another kind of tokenizer.
        """
        tokenizer = super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        tokens = tokenizer.backend_tokenizer.get_vocab(with_added_tokens=False)  # an added one may be `</w>` itself
        if not any(token.endswith(END_OF_WORD) for token in tokens):
            if len(tokenizer) == 1 and not os.path.isdir(pretrained_model_name_or_path):
                found = "is no folder here, and no id of the hub whose tokenizer could be opened"
            else:
                found = f"has no tokenizer of GPT-1's kind: no token ends in {END_OF_WORD}"
            raise UserError(
                f"{pretrained_model_name_or_path} {found}. Pass the folder or hub id of such a tokenizer, with "
                "tokenizer.json, or vocab.json and merges.txt; `tokenization.open_tokenizer` opens other kinds, too."
            )
        if kwargs.get("_from_pipeline") == "text-generation":
            tokenizer.goes_on = True
        return tokenizer

    @classmethod
    def from_openai(cls, encoder_json: str | os.PathLike, merges: str | os.PathLike, **kwargs) -> "GPT1Tokenizer":
        """Opens the tokenizer in OpenAI's two files.

        Args:
            encoder_json (path): `encoder_bpe_40000.json`, token to id.
            merges (path): `vocab_40000.bpe`, one merge a line after a `#version` line.
            kwargs: arguments of the constructor.

        Raises:
            ValueError: a file is missing, or is not what its name says.
        """
        try:
            vocab, pairs = BPE.read_file(str(encoder_json), str(merges))
        except Exception as error:  # tokenizers raises no narrower one, and does not name the file
            raise UserError(
                f"No tokenizer is in {encoder_json} and {merges}: {error}. Pass the paths of OpenAI's "
                "encoder_bpe_40000.json and vocab_40000.bpe, in this order."
            ) from error
        return cls(vocab=vocab, merges=pairs, **kwargs)

    @classmethod
    def train(
        cls,
        files_or_iterator: str | os.PathLike | Iterable,
        num_merges: int = DEFAULT_MERGES,
        min_frequency: int = 2,
        show_progress: bool = True,
        **kwargs,
    ) -> "GPT1Tokenizer":
        """
        Learns a BPE from text, which is read once, as a stream. The same text gives the same tokenizer. No character
        of the text is ever unknown: the alphabet has each of them, both inside and at the end of a word.

        Args:
            files_or_iterator (path, list of paths, or iterator of `str`): a corpus as in `training_texts`, or texts
                of your own; a list always means files, so pass a list of texts as `iter(texts)`.
            num_merges (`int`, defaults to 40000): merges to learn; fewer if the text has no more.
            min_frequency (`int`, defaults to 2): a pair of symbols seen less often is not merged.
            show_progress (`bool`, defaults to `True`): show progress bars.
            kwargs: arguments of the constructor.

        Raises:
            ValueError: the text has no words, or `num_merges` is negative.
        """
        check_num_merges(num_merges)
        prepared = cls(**kwargs).backend_tokenizer
        words = count_words(prepared, texts_to_learn_from(files_or_iterator), show_progress)
        if not words.keys() - {"\n"}:
            raise UserError("The training text has no words. Give files or strings with text in them.")
        letters = sorted(set("".join(words)))
        last_letters = [letter + END_OF_WORD for letter in letters]
        alphabet = [prepared.model.unk_token, *letters, *last_letters]
        merges = learn_merges(
            words, alphabet, num_merges, min_frequency, show_progress, end_of_word_suffix=END_OF_WORD
        )
        merged = [first + second for first, second in merges]
        different_tokens = dict.fromkeys([*alphabet, NEWLINE, *merged])
        vocab = {token: index for index, token in enumerate(different_tokens)}
        return cls(vocab=vocab, merges=merges, **kwargs)

    @property
    def has_control_tokens(self) -> bool:
        """Whether the start, delimiter and extract tokens are there."""
        return all(self._special_tokens_map.get(name) is not None for name in CONTROL_TOKENS)

    def add_control_tokens(self, model: PreTrainedModel | None = None) -> int:
        """As the function [`~tokenization.add_control_tokens`]."""
        return add_control_tokens(self, model)

    def _add_tokens(self, new_tokens, special_tokens=False) -> int:
        # Found in the text as it is written: what prepares a text would begin a new line before each token.
        as_written = []
        for token in new_tokens:
            settings = AddedToken(token).__getstate__() if isinstance(token, str) else token.__getstate__()
            as_written.append(AddedToken(**{**settings, "normalized": False}))
        return super()._add_tokens(as_written, special_tokens)

    def update_post_processor(self):
        """With control tokens, one text becomes `[s] text [e]` and a pair `[s] a [$] b [e]`. If `add_bos_token` or
        `add_eos_token` is given, these two settings alone decide which tokens surround a text.
        """
        if not self.has_control_tokens or self._ends_given or self.add_bos_token or self.add_eos_token:
            return super().update_post_processor()
        self._tokenizer.post_processor = control_templates(self)

    def _encode_plus(self, text, text_pair=None, **kwargs) -> BatchEncoding:
        kwargs["split_special_tokens"] = True
        if self._has_spelled_start(text):
            logger.warning_once(
                f"A text begins with {self.bos_token!r}, which is read as these characters. For the token of that "
                "name, open the tokenizer with `add_bos_token=True`, and give the texts alone."
            )
        if self.goes_on:
            kwargs["add_special_tokens"] = False
        return encode_ids_first(self, text, text_pair, **kwargs)

    def apply_chat_template(
        self,
        conversation,
        tools=None,
        documents=None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        tokenize: bool = True,
        *,  # releases of transformers order the following differently
        sanitize_control_tokens: bool = True,
        padding=False,
        truncation: bool = False,
        max_length: int | None = None,
        return_tensors=None,
        return_dict: bool = True,
        return_assistant_tokens_mask: bool = False,
        tokenizer_kwargs: dict | None = None,
        **kwargs,
    ):
        """As in transformers. The control tokens in the ids are the template's alone, whatever the messages spell and
        whatever `sanitize_control_tokens` is. `truncation` cuts the beginning off, from which a reply depends least.

        Raises:
            ValueError: the tokenizer has no chat template; `return_assistant_tokens_mask` is set; `tokenizer_kwargs`
                has others than `padding_side` and `pad_to_multiple_of`.
        """
        if return_assistant_tokens_mask:
            raise UserError(
                "`return_assistant_tokens_mask` is True, but this tokenizer does not find the tokens of a template's "
                "generation blocks. Leave it out; the tokens of a reply are those behind the ids of the messages "
                "before it."
            )
        padding_options = tokenizer_kwargs or {}
        unknown = [name for name in padding_options if name not in CHAT_PADDING]
        if unknown:
            raise UserError(
                f"`tokenizer_kwargs` has {unknown[0]!r}, but a conversation is encoded with "
                f"{' and '.join(CHAT_PADDING)} only. Leave it out."
            )
        template_options = {
            "tools": tools,
            "documents": documents,
            "chat_template": chat_template,
            "add_generation_prompt": add_generation_prompt,
            "continue_final_message": continue_final_message,
            **kwargs,
        }
        if not tokenize:
            return super().apply_chat_template(conversation, tokenize=False, **template_options)
        is_batch = len(conversation) > 0 and (
            isinstance(conversation[0], list | tuple) or hasattr(conversation[0], "messages")
        )
        conversations = conversation if is_batch else [conversation]
        chats = [
            write_conversation(self, getattr(chat, "messages", chat), **template_options) for chat in conversations
        ]
        input_ids = encode_chats(self, chats)
        if truncation:
            limit = self.model_max_length if max_length is None else max_length
            input_ids = [ids[-limit:] for ids in input_ids]
        encoding = self.pad(
            {"input_ids": input_ids if is_batch or return_tensors else input_ids[0]},
            padding=padding,
            max_length=max_length,
            return_tensors=return_tensors,
            **padding_options,
        )
        return encoding if return_dict else encoding["input_ids"]

    def _has_spelled_start(self, text) -> bool:
        """Whether a program has written the beginning-of-text token before the first text, as minicons does."""
        first = text[0] if isinstance(text, (list, tuple)) and text else text
        if self.bos_token is None or not isinstance(first, str) or not first.startswith(self.bos_token):
            return False
        rest = first.removeprefix(self.bos_token)
        return not (rest == "" or rest[0].isspace())  # a corpus may have `<unk>` as a word

    def clean_up_tokenization(self, text: str) -> str:
        """Decoded text with its words and punctuation joined."""
        if self.goes_on:
            return join_continuation(text, before=ANY_WORD)
        return join_words(text)

    def _decode(self, token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=None, **kwargs) -> str:
        # The clean-up of transformers leaves the text of every BPE as it is.
        text = super()._decode(token_ids, skip_special_tokens, clean_up_tokenization_spaces=False, **kwargs)
        if clean_up_tokenization_spaces is None:
            clean_up_tokenization_spaces = self.clean_up_tokenization_spaces or self.goes_on
        if clean_up_tokenization_spaces:
            return self.clean_up_tokenization(text)
        return text


def open_tokenizer(name_or_path: str | os.PathLike, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """Opens the tokenizer of a folder or hub id: a [`GPT1Tokenizer`] for GPT-1, otherwise what `AutoTokenizer` gives,
    such as GPT-2's byte-level BPE of 50 257 tokens or BERT's WordPiece. A tokenizer without a padding token pads with
    its end-of-text token. Text that spells a special token, such as `<|endoftext|>`, is read as text, but
    for the pieces of a Unigram vocabulary, such as T5's `</s>`. `trust_remote_code` runs the code that a tokenizer of
    another kind brings.
    """
    if name_or_path == "gpt1-novels" and not os.path.exists(name_or_path):
        raise UserError("'gpt1-novels' is a name for the commands. Pass its folder, `modeling_gpt1.NOVELS`.")
    if str(name_or_path).count("/") > 1 and not os.path.exists(name_or_path):
        raise UserError(
            f"There is no folder {name_or_path}. Pass a folder with a tokenizer, or a hub id such as owner/name."
        )
    if _is_of_gpt1(name_or_path):
        return GPT1Tokenizer.from_pretrained(name_or_path)
    consent = {"trust_remote_code": trust_remote_code}
    tokenizer = AutoTokenizer.from_pretrained(name_or_path, **consent)
    any_word(tokenizer)  # refuses what transformers makes where there are no files of a tokenizer
    pad_with_end_of_text(tokenizer)
    keep_text_as_text(tokenizer)
    return tokenizer


def _is_of_gpt1(name_or_path: str | os.PathLike) -> bool:
    tokenizer_class = get_tokenizer_config(name_or_path).get("tokenizer_class")
    if tokenizer_class is None:
        return _model_type(name_or_path) in GPT1_TYPES
    return tokenizer_class in GPT1_CLASSES


def _model_type(name_or_path: str | os.PathLike) -> str | None:
    try:
        return PreTrainedConfig.get_config_dict(name_or_path)[0].get("model_type")
    except OSError:  # a folder of a tokenizer alone
        return None


def _prepare(backend: Tokenizer, do_lower_case: bool) -> None:
    """Gives a backend the steps around its BPE: preparation, words, and back to text."""
    backend.normalizer = preparation(do_lower_case)
    backend.pre_tokenizer = pre_tokenizers.CharDelimiterSplit(" ")
    backend.decoder = decoders.Sequence(
        [decoders.BPEDecoder(suffix=END_OF_WORD), decoders.Fuse(), decoders.Replace(" \n ", "\n")]
    )
