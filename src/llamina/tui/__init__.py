"""`llamina tui` and `llamina top`: conversations and a running server on a whole terminal, by Textual."""
