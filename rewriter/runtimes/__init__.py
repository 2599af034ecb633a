"""Other runtimes than the one that proves: the delivered file on each of them, in a process of its own."""
