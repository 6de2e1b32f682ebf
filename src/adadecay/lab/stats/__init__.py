"""Statistics: scores of trials, intervals, tests, comparisons, verdicts, claims.

``data``          what a study hands over; ``snapshot``: the same as a small folder
``scores``        epoch table → one score for each trial → arms (trials of one setting)
``intervals``     paired differences → trimmed-t, BCa
``significance``  sign-flip test, Holm, smallest difference
``selection``     which arms belong together
``compare``       two arms → a ``Comparison``; a family of them, Holm-adjusted
``verdicts``      the rules of docs/statistics.md
``aggregate``     many cells → one average for each optimizer; the mean of θ
``claims``        what the paper claims, and which comparisons test it
``analysis``      a study's tables → everything above, once, for the report
"""
