"""From text to ids and back: tokenizer, word rules, control tokens, the forms of other tokenizers."""
