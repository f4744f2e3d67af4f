"""Scripts a reader follows top to bottom, and the results they made."""
