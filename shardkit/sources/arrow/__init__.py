"""What pyarrow reads: Parquet files, and data sets of Hugging Face."""
