"""The forms of other tools that `export` writes."""

COCO, CSV, FOLDER, WEBDATASET = FORMS = ("coco", "csv", "folder", "webdataset")
