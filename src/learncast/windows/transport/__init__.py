"""How far back blame is carried: transport factors, base rates, and how they decay with the lag."""
