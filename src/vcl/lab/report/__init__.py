"""`vcl report`: a page from the rows of folders of results."""
