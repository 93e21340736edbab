"""`llamina serve`: HTTP around models. It translates, keeps and protects; models compute in processes of their own."""
