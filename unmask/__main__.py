"""`python -m unmask`: the same as the command `unmask`."""

from unmask.cli.main import main

if __name__ == "__main__":
    main()
