"""Reply texts."""

from protocols.amqp091.constants import NOT_FOUND, REPLY_NAMES, reply_text


def test_reply_text_names_the_code():
    assert reply_text(NOT_FOUND, "no queue 'x'") == "NOT_FOUND - no queue 'x'"


def test_reply_text_fits_a_short_string_and_stays_utf8():
    text = reply_text(NOT_FOUND, "ä" * 300)
    assert len(text.encode()) <= 255
    assert text.endswith("ä")


def test_each_code_of_the_specification_has_a_name():
    codes = {311, 312, 313, 320, 402, 403, 404, 405, 406, 501, 502, 503, 504, 505, 506, 530, 540, 541}
    assert codes <= set(REPLY_NAMES)
