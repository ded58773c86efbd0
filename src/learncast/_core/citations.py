"""The papers whose equations are implemented, as BibTeX."""

from __future__ import annotations

BIBTEX = {
    "curriculum2025": """@unpublished{curriculum2025,
  title = {Theoretical foundations of curriculum learning in linear {RNNs}},
  note  = {Manuscript},
  year  = {2025}
}""",
    "proca2025": """@inproceedings{proca2025,
  title     = {Learning dynamics in linear recurrent neural networks},
  author    = {Proca, Alexandra M. and Domin{\\'e}, Cl{\\'e}mentine C. J. and Shanahan, Murray
               and Mediano, Pedro A. M.},
  booktitle = {International Conference on Machine Learning},
  year      = {2025}
}""",
    "braun2022": """@inproceedings{braun2022,
  title     = {Exact learning dynamics of deep linear networks with prior knowledge},
  author    = {Braun, Lukas and Domin{\\'e}, Cl{\\'e}mentine and Fitzgerald, James and Saxe, Andrew},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2022}
}""",
    "saxe2014": """@inproceedings{saxe2014,
  title     = {Exact solutions to the nonlinear dynamics of learning in deep linear neural networks},
  author    = {Saxe, Andrew M. and McClelland, James L. and Ganguli, Surya},
  booktitle = {International Conference on Learning Representations},
  year      = {2014}
}""",
    "livi2025": """@misc{livi2025,
  title         = {Learnability window in gated recurrent neural networks},
  author        = {Livi, Lorenzo},
  eprint        = {2512.05790},
  archiveprefix = {arXiv},
  year          = {2025}
}""",
}


def bibliography(*keys: str) -> str:
    """Return the BibTeX entries of the given keys, or of all."""
    return "\n\n".join(BIBTEX[key] for key in keys or tuple(BIBTEX)) + "\n"
