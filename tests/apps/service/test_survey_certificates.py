"""Certificates of a closed survey's answers, as its owner gets them."""

from __future__ import annotations

import json

import pytest

from tacit.apps.cli.campaign.surveys import write_certificates
from tacit.apps.service import surveys
from tacit.privacy import errors
from tacit.privacy.certificate import Certificate

from .test_surveys import people, survey


def test_answers_of_a_closed_survey_have_a_certificate_that_states_both(tmp_path):
    reports = survey().release(people(600))
    summary = surveys.summarize(reports, 0.95, closed=True)
    answered = [one for one in summary["answers"] if "problem" not in one]
    assert len(answered) == 5
    write_certificates(json.loads(json.dumps(summary)), tmp_path / "c")
    kept = sorted((tmp_path / "c").iterdir())
    assert kept[0].name == "1-smoker.json"
    assert len(kept) == len(answered)
    for path, one in zip(kept, answered, strict=True):
        certificate = Certificate.load(path)
        certificate.verify()
        assert str(certificate.guarantee) == str(reports.guarantee)
        assert one["readers"].startswith(str(certificate.readers))
        assert surveys.WITHDRAWN in certificate.not_protected
        assert f"Answered: {one['question']}" in "\n".join(certificate.about)
        assert "Tobacco in any form." in certificate.explain()


def test_answers_of_an_open_survey_have_none(tmp_path):
    reports = survey().release(people(600))
    summary = surveys.summarize(reports, 0.95, closed=False)
    assert not any("certificate" in one for one in summary["answers"])
    with pytest.raises(errors.InvalidParameter, match="closed survey"):
        write_certificates(summary, tmp_path / "c")
    assert not (tmp_path / "c").exists()
