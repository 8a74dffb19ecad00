"""Seals of letters: those that are stored must stay good, whatever makes them."""

import pytest
from msgspec.structs import replace

from deadletter.core.packing import pack_rest
from deadletter.core.seals import EDITED, Sealing, Verdict
from deadletter.testing.letters_bench import a_letter

_PLAIN, _KEYED = Sealing(), Sealing(b"0123456789abcdef" * 2)
_DIGEST = b"d" * 16
_STORY = ("frame", "story\ud800", 1 << 70, 3)


@pytest.mark.parametrize(
    ("sealing", "id_", "message", "story"),
    [
        (
            *(_PLAIN, "6vdwbizdpodls6qyfjwk7jlc"),
            "6500000000891bf823032d5a5ab2085a86fea2a6ce",
            "6b0000000043fb69f6db0a0821072b0382e9bf6bb0",
        ),
        (
            *(_PLAIN, "short"),
            "6500000000c37c2fdb270170dcb3f8b95ed9083dfa",
            "6b00000000f5fb30e28ccf5026496007981a9a36e1",
        ),
        (
            *(_PLAIN, "\ud800"),
            "6500000000dff55737afa3e875f2a22a12c22525a6",
            "6b00000000326ff40cd7200edbca2cff8ed7b2107e",
        ),
        (
            *(_KEYED, "6vdwbizdpodls6qyfjwk7jlc"),
            "65b6fb18d20bf97cdd1dc2cee5082864dc4aa2c57f",
            "6bb6fb18d224adcee0d0183b198fa2d5577db3f06c",
        ),
    ],
)
def test_a_seal_is_the_same_in_every_version(
    sealing: Sealing, id_: str, message: str, story: str
) -> None:
    letter = a_letter(b"{}", message_id="m-1")
    head, rest = replace(letter.head, id=id_), pack_rest(letter)

    sealed = sealing.message(head, _DIGEST, rest, EDITED)
    told = sealing.story(head, _STORY)

    assert (sealed.hex(), told.hex()) == (message, story)
    assert sealing.check_message(sealed, head, _DIGEST, rest) is Verdict.GOOD
    assert sealing.check_story(told, head, _STORY) is Verdict.GOOD
