"""The texts of single tokens: together the reply, and a character of several tokens with the last of them."""

from hypothesis import given
from hypothesis import strategies as st

from turnwise.policy.token_texts import Spelling
from turnwise.policy.tokenizer import train_tokenizer

TEXTS = ["<think> go left</think><answer>Left</answer>", "the capital of Chad"] * 4


def test_the_texts_of_tokens_are_the_reply_in_pieces(tmp_path_factory):
    tokenizer = train_tokenizer(TEXTS, 300, ["<think>", "</think>"])
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save_pretrained(folder)
    spelling = Spelling(folder)

    @given(st.text(max_size=40))
    def holds(text):
        tokens = tokenizer(text)["input_ids"]
        assert "".join(spelling(tokens)) == text
        assert len(spelling(tokens)) == len(tokens)

    holds()
    assert spelling(tokenizer("<think>é</think>")["input_ids"]) == ["<think>", "", "é", "</think>"]
    # Half a character, where a reply was cut off.
    assert spelling(tokenizer("aé")["input_ids"][:2]) == ["a", "�"]
