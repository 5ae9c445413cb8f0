"""The demo: trained variants, their registration over REST, and a load of bursts."""
