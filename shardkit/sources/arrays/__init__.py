"""Arrays whose first axis counts the rows: .npy, .npz and HDF5 files."""
