from storage.batch import WriteOps


def test_operations_are_kept_in_order():
    ops = WriteOps()
    ops.put(b"a", b"1")
    ops.put(b"b", b"")
    ops.delete(b"c")
    assert ops.puts == [(b"a", b"1"), (b"b", b"")]
    assert ops.deletes == [b"c"]
    assert len(ops) == 3
    assert repr(ops) == "WriteOps(puts=2, deletes=1)"


def test_empty_batch_is_false():
    assert not WriteOps()
