"""What a training script finds around its steps, by torch_xla's names: the processes
and devices of the job, structures that hold tensors, sample data, lines for its log."""
