CREATE TABLE answers (
	row BYTEA NOT NULL, 
	campaign INTEGER NOT NULL, 
	kind SMALLINT NOT NULL, 
	round SMALLINT NOT NULL, 
	content BYTEA, 
	PRIMARY KEY (row)
);
CREATE TABLE campaigns (
	number SERIAL NOT NULL, 
	id VARCHAR(16) NOT NULL, 
	title TEXT NOT NULL, 
	purpose TEXT NOT NULL, 
	labelled BOOLEAN NOT NULL, 
	question TEXT, 
	vote_epsilon TEXT, 
	vote_by_class BOOLEAN NOT NULL, 
	opens TEXT, 
	closes TEXT, 
	minimum INTEGER NOT NULL, 
	quota INTEGER, 
	owner BYTEA NOT NULL, 
	closed BOOLEAN NOT NULL, 
	round SMALLINT NOT NULL, 
	reports INTEGER NOT NULL, 
	votes INTEGER NOT NULL, 
	model_sha256 VARCHAR(64), 
	model_reports INTEGER, 
	published TEXT, 
	PRIMARY KEY (number), 
	UNIQUE (id)
);
CREATE TABLE invitations (
	row BYTEA NOT NULL, 
	campaign INTEGER NOT NULL, 
	PRIMARY KEY (row)
);
CREATE TABLE models (
	campaign VARCHAR(16) NOT NULL, 
	content BYTEA NOT NULL, 
	PRIMARY KEY (campaign)
);
CREATE TABLE rounds (
	campaign VARCHAR(16) NOT NULL, 
	number SMALLINT NOT NULL, 
	fingerprint VARCHAR(64) NOT NULL, 
	artifact BYTEA NOT NULL, 
	encoder BYTEA, 
	PRIMARY KEY (campaign, number), 
	UNIQUE (campaign, fingerprint)
);
CREATE TABLE tacit_schema (
	version SERIAL NOT NULL, 
	secret_mark BYTEA NOT NULL, 
	PRIMARY KEY (version)
);
