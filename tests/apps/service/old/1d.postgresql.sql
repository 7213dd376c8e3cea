CREATE TABLE answers (
	row BYTEA NOT NULL, 
	campaign VARCHAR(16) NOT NULL, 
	kind VARCHAR(6) NOT NULL, 
	content BYTEA, 
	PRIMARY KEY (row)
);
CREATE TABLE campaigns (
	id VARCHAR(16) NOT NULL, 
	title TEXT NOT NULL, 
	purpose TEXT NOT NULL, 
	fingerprint VARCHAR(64) NOT NULL, 
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
	reports INTEGER NOT NULL, 
	votes INTEGER NOT NULL, 
	model_sha256 VARCHAR(64), 
	model_reports INTEGER, 
	published TEXT, 
	PRIMARY KEY (id)
);
CREATE TABLE files (
	campaign VARCHAR(16) NOT NULL, 
	name VARCHAR(16) NOT NULL, 
	content BYTEA NOT NULL, 
	PRIMARY KEY (campaign, name)
);
CREATE TABLE invitations (
	row BYTEA NOT NULL, 
	campaign VARCHAR(16) NOT NULL, 
	PRIMARY KEY (row)
);
CREATE TABLE tacit_schema (
	version SERIAL NOT NULL, 
	secret_mark BYTEA NOT NULL, 
	PRIMARY KEY (version)
);
