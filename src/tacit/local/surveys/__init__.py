"""Surveys: declared questions, one report a person, answers with intervals."""
