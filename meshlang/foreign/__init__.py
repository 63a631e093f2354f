"""What other systems say of parallelism, as specs and cards; what has no word here is a finding that names it."""
