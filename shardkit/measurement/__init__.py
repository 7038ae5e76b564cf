"""What reading a data set costs on this machine: measured through the same public readers that training uses."""
