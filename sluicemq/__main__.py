"""`python -m sluicemq`, and the `sluicemq` command."""

from broker.__main__ import main

if __name__ == "__main__":
    main()
