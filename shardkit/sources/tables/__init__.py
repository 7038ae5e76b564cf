"""Tables: .csv, .tsv and .jsonl files."""
