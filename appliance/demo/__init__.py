"""Demo applications: really trained variants, their registration over REST, a load that exceeds the best of them."""
