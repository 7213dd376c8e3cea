"""The studies, one per module.

Every module here holds a `STUDY`: see `tacit_papers.engine.registry`. What a study is made of is in
`tacit_papers.parts`.
"""
