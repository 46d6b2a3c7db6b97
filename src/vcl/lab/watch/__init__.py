"""`vcl watch`: the page of folders of results, live, on this machine."""
