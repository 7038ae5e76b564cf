"""Proof of what a data set holds."""

from shardkit.verification.report import Problem, VerifyReport
from shardkit.verification.run import verify

__all__ = ["Problem", "VerifyReport", "verify"]
