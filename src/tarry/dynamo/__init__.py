"""`torch.compile(backend="tarry")`: the graph that PyTorch traced once is recorded
once, compiled by the same table, and replayed without recording.

    backend.py   the entry: AOTAutograd's forward and backward graphs
    split.py     what runs on the host stands between programs
    tracing.py   a graph and the geometry of its inputs -> a recording, aside
    arguments.py   the arguments of a call as buffers and numbers
    replay.py    calls: buffers in, program, tensors out
"""
