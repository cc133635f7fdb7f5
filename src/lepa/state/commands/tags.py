"""Pure: names for versions of a job. A version with a name is kept however many come after it."""

from typing import Final

from msgspec.structs import replace

from lepa.model.errors import invalid, not_found
from lepa.model.job import Job, JobVersionTag
from lepa.state import keys
from lepa.state.commands.draft import Draft
from lepa.state.commands.jobs import existing_job

NAME_MAX: Final = 128
DESCRIPTION_MAX: Final = 256
TAGS_MAX: Final = 64
"""Named versions of one job."""


def tag_version(
    draft: Draft, namespace: str, job_id: str, name: str, *, version: int | None = None, description: str = ""
) -> JobVersionTag:
    """Name a version (None: the newest). Naming it again changes its name or description."""
    _check_texts(name, description)
    present = existing_job(draft, namespace, job_id)
    number = present.version if version is None else version
    versions = draft.snapshot.job_versions(namespace, job_id)
    chosen = next((job for job in versions if job.version == number), None)
    if chosen is None:
        raise not_found(f'job "{job_id}" in namespace "{namespace}" at version {number} not found')
    tagged = [job for job in versions if job.version_tag is not None and job.version != number]
    if any(job.version_tag.name == name for job in tagged if job.version_tag is not None):
        raise invalid(f'tag "{name}" already exists on a different version of job "{job_id}"')
    if len(tagged) >= TAGS_MAX:
        raise invalid(f'job "{job_id}" has {len(tagged)} tagged versions; at most {TAGS_MAX} are kept: unset one')
    tag = JobVersionTag(name=name, description=description, tagged_time=draft.now_ns)
    _put(draft, present, chosen, tag)
    return tag


def remove_tag(draft: Draft, namespace: str, job_id: str, name: str) -> JobVersionTag:
    """Take a name away; the version then goes when enough others have come after it. Answers with what it was."""
    present = existing_job(draft, namespace, job_id)
    for chosen in draft.snapshot.job_versions(namespace, job_id):
        if chosen.version_tag is not None and chosen.version_tag.name == name:
            _put(draft, present, chosen, None)
            return chosen.version_tag
    raise not_found(f'tag "{name}" not found on job "{job_id}"')


def _put(draft: Draft, present: Job, chosen: Job, tag: JobVersionTag | None) -> None:
    key = keys.job_version_key(chosen.namespace, chosen.id, chosen.version)
    draft.put(key, replace(chosen, version_tag=tag), chosen)
    if present.version == chosen.version:
        key = keys.job_key(present.namespace, present.id)
        draft.put(key, replace(present, version_tag=tag), draft.snapshot.job(present.namespace, present.id))


def _check_texts(name: str, description: str) -> None:
    if not name or len(name) > NAME_MAX:
        raise invalid(f"a tag's name has 1 to {NAME_MAX} characters, not {len(name)}")
    if len(description) > DESCRIPTION_MAX:
        raise invalid(f"a tag's description has at most {DESCRIPTION_MAX} characters, not {len(description)}")
